# Words for what the two programs list: VICI's list-sas, or `list --json`.

def plain: if . == "yes" or . == "true" then true elif . == "no" or . == "false" then false else . end;
def spi: tostring | ascii_downcase | ltrimstr("0x");

def child:
    with_entries(.value |= if type == "string" then plain else . end)
    | (."spi-in", ."spi-out") |= spi
    | (."bytes-in", ."bytes-out", ."packets-in", ."packets-out") |= (. // 0 | tonumber);

# One form for both programs. Half-open SAs of unknown peers have no name and
# are left out.
def normal:
    map(select(.name != "(unnamed)" and (.name // "") != "")
        | with_entries(.value |= if type == "string" then plain else . end)
        | ."child-sas" = ((."child-sas" // []) | if type == "object" then [.[]] else . end | map(child)));

# SAs in use: a peer may keep a rekeyed or redundant one for a while.
def live: map(select(.state == "ESTABLISHED"));
def children: [live[]."child-sas"[] | select(.state == "INSTALLED")];

# SPIs, as that side sees them or as its peer does.
def spis: children | map([."spi-in", ."spi-out"]) | sort;
def mirrored: children | map([."spi-out", ."spi-in"]) | sort;
def ike_spis: live | map([(."initiator-spi", ."responder-spi") | spi]) | sort;

# Over {us, them}: both sides have the same children.
def agree: (.us | spis) == (.them | mirrored);
def installed($n):
    (.us | live | length == 1) and (.them | live | length == 1)
    and (.us | children | length == $n) and agree;

def mark($what): .them | if $what == "child" then spis else ike_spis end;
def rekeyed($what; $before):
    mark($what) as $now
    | ($now | length) == ($before | length) and ($before - $now) != [] and agree and (.us | live | length > 0);
