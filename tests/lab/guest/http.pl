# A web server of files, for revocation lists: http.pl ADDRESS PORT FOLDER
use strict;
use warnings;
use IO::Socket::INET;

my ($address, $port, $folder) = @ARGV;
$| = 1;
my $listener = IO::Socket::INET->new(
    LocalAddr => $address, LocalPort => $port, Listen => 16, ReuseAddr => 1)
    or die "listen: $!";
while (my $client = $listener->accept) {
    my $request = <$client> // next;
    while (defined(my $line = <$client>)) { last if $line =~ /^\r?\n$/ }
    my ($name) = $request =~ m{^GET /([\w.-]+) HTTP/1};
    print $client->peerhost, ' ', $request;
    if ($name && open(my $file, '<:raw', "$folder/$name")) {
        local $/;
        my $body = <$file>;
        print $client "HTTP/1.1 200 OK\r\nContent-Type: application/pkix-crl\r\n",
            "Content-Length: ", length $body, "\r\nConnection: close\r\n\r\n", $body;
    } else {
        print $client "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    }
    close $client;
}
