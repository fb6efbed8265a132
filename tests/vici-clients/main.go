// Drives a daemon by strongSwan's own Go library: the arguments are the socket and the peer's port.
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/strongswan/govici/vici"
)

type auth struct {
	Auth string `vici:"auth"`
	ID   string `vici:"id"`
}

type child struct {
	LocalTS  []string `vici:"local_ts"`
	RemoteTS []string `vici:"remote_ts"`
}

type connection struct {
	LocalAddrs  []string          `vici:"local_addrs"`
	RemoteAddrs []string          `vici:"remote_addrs"`
	RemotePort  string            `vici:"remote_port"`
	Local       *auth             `vici:"local"`
	Remote      *auth             `vici:"remote"`
	Children    map[string]*child `vici:"children"`
}

func main() {
	s, err := vici.NewSession(vici.WithAddr("unix", os.Args[1]))
	check(err)
	defer s.Close()
	secret := vici.NewMessage()
	check(secret.Set("id", "ike-1"))
	check(secret.Set("type", "IKE"))
	check(secret.Set("data", "a secret of tests"))
	check(secret.Set("owners", []string{"left.example.org", "right.example.org"}))
	ask(s, "load-shared", secret)
	site, err := vici.MarshalMessage(&connection{
		LocalAddrs: []string{"127.0.0.1"}, RemoteAddrs: []string{"127.0.0.1"}, RemotePort: os.Args[2],
		Local:  &auth{"psk", "left.example.org"},
		Remote: &auth{"psk", "right.example.org"},
		Children: map[string]*child{
			"net": {[]string{"10.1.0.0/16"}, []string{"10.2.0.0/16"}},
		},
	})
	check(err)
	load := vici.NewMessage()
	check(load.Set("site", site))
	ask(s, "load-conn", load)
	initiate := vici.NewMessage()
	check(initiate.Set("child", "net"))
	stream(s, "initiate", "control-log", initiate)
	if sas := stream(s, "list-sas", "list-sa", vici.NewMessage()); sas != 1 {
		log.Fatalf("%d IKE SAs", sas)
	}
	terminate := vici.NewMessage()
	check(terminate.Set("ike", "site"))
	stream(s, "terminate", "control-log", terminate)
	unload := vici.NewMessage()
	check(unload.Set("name", "site"))
	ask(s, "unload-conn", unload)
	ask(s, "clear-creds", vici.NewMessage())
	fmt.Println("go's govici: ok")
}

func ask(s *vici.Session, command string, m *vici.Message) {
	_, err := s.CommandRequest(command, m)
	check(err)
}

func stream(s *vici.Session, command, event string, m *vici.Message) (count int) {
	messages, err := s.StreamedCommandRequest(command, event, m)
	check(err)
	for _, message := range messages {
		check(message.Err())
	}
	return len(messages) - 1
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
