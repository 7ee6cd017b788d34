package group_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/golaunch/golaunch/launcher"
)

// TestConnectionsOfAGroupAreReset: when connections are reset, each call still gets exactly one
// answer, even a call between two resets, and no worker ends.
func TestConnectionsOfAGroupAreReset(t *testing.T) {
	g := startGroup(t, launcher.Job{Env: []string{afarVar + "=1"}})
	ctx := limited(t)
	if _, err := g.CallAll(ctx, "rank", nil); err != nil {
		t.Fatal(err)
	}
	socket := meeting(t)
	large := bytes.Repeat([]byte{1, 2, 3, 4}, 1<<20)
	done := make(chan error)
	const rounds, behind = 5, 3
	for range rounds {
		go func() {
			out, err := g.Call(ctx, 1, "hold", []byte(socket.Addr().String()))
			if err == nil && string(out) != "held" {
				err = fmt.Errorf("%q", out)
			}
			done <- err
		}()
		held, err := socket.Accept()
		if err != nil {
			t.Fatal(err)
		}
		call := func() {
			all, err := g.CallAll(ctx, "echo", large)
			if err == nil && !slices.ContainsFunc(all, func(out []byte) bool { return !bytes.Equal(out, large) }) {
				_, err = g.CallAll(ctx, "nth", nil)
			}
			done <- err
		}
		for range behind {
			go call()
		}
		if n := g.Reset(); n == 0 {
			t.Error("there is no connection to reset")
		}
		go call()
		held.Close()
		for range behind + 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	for method, want := range map[string]string{"nth": fmt.Sprint(rounds*(behind+1) + 1), "attempt": "0"} {
		all, err := g.CallAll(ctx, method, nil)
		if err != nil || slices.ContainsFunc(all, func(out []byte) bool { return string(out) != want }) {
			t.Errorf("%s: %q, %v, want %s of each", method, all, err, want)
		}
	}
	g.Reset()
	if result, err := g.Close(); err != nil || result.Code != 0 {
		t.Errorf("%+v, %v", result, err)
	}
}
