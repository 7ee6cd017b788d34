package masterport

import (
	"testing"
)

func TestSaysTaken(t *testing.T) {
	for text, want := range map[string]bool{
		"add_port.cc:83] Failed to add port to server: No address added out of total 1 resolved for '[::]:24999'": true,
		"listen tcp 10.0.0.2:24999: bind: address already in use":                                                 true,
		"The server socket has failed to bind to [::]:24999 (errno: 98 - Address already in use).":                true,
		"OSError: [Errno 98] Address already in use\nconnecting to :24999":                                        false,
		"listening on 24999": false,
		"":                   false,
	} {
		if got := SaysTaken("before\n"+text+"\nafter", 24999); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
