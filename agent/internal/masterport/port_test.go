package masterport

import (
	"testing"

	"github.com/golaunch/golaunch/internal/host/ports"
)

// TestFree checks that each job on one machine gets the ports beside its own port to itself.
func TestFree(t *testing.T) {
	const host = "127.0.0.1"
	var taken []int
	for range 50 {
		l, err := Free(t.Context(), Low, host)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for _, other := range taken {
			if Of(l)-other <= beside && other-Of(l) <= beside {
				t.Errorf("%d is beside %d", Of(l), other)
			}
		}
		taken = append(taken, Of(l))
	}
	// In a range that is too narrow, any free port will do.
	narrow := ports.Range{First: taken[0] - 1, Last: taken[0] + 1}
	l, err := Free(t.Context(), narrow, host)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if p := Of(l); p != taken[0]-1 && p != taken[0]+1 {
		t.Errorf("%d is not of %v", p, narrow)
	}
}

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
