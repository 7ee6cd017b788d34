package launcher

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneEvent has signals that come within a second of a stop be the same event, in any mixture,
// whenever they are acted upon.
func TestOneEvent(t *testing.T) {
	const ms = time.Millisecond
	type told struct {
		after time.Duration
		sig   syscall.Signal
	}
	hup, intr, term, usr1, usr2 := syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2
	for name, c := range map[string]struct {
		told []told
		want []os.Signal
	}{
		"a terminal closes":         {[]told{{0, hup}, {ms, hup}}, []os.Signal{hup}},
		"a mixture":                 {[]told{{0, term}, {5 * ms, hup}, {500 * ms, intr}, {400 * ms, term}}, []os.Signal{term}},
		"a person's later ^C":       {[]told{{0, term}, {5 * ms, term}, {1200 * ms, intr}, {ms, intr}}, []os.Signal{term, intr}},
		"the second is the first's": {[]told{{0, term}, {900 * ms, term}, {900 * ms, term}}, []os.Signal{term, term}},
		"not for the ranks":         {[]told{{0, usr1}, {ms, term}, {ms, usr1}, {ms, term}}, []os.Signal{usr1, term, usr1}},
		"a signal that stops too":   {[]told{{0, usr2}, {ms, term}}, []os.Signal{stopSignal{usr2}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals, left := make(chan os.Signal), make(chan struct{})
				h := listen(signals, []os.Signal{usr2, term}, left)
				for _, s := range c.told { // nobody hears them yet
					time.Sleep(s.after)
					signals <- s.sig
				}
				close(signals)
				var got []os.Signal
				for s := range h.heard {
					got = append(got, s)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("heard %v, want %v", got, c.want)
				}
				close(left)
			})
		})
	}
}

// TestReached says whether who stops this process does so just now.
func TestReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, left := make(chan os.Signal, 1), make(chan struct{})
		defer close(left)
		h := listen(signals, nil, left)
		if h.reached() {
			t.Error("nobody has stopped it")
		}
		time.AfterFunc(sameEvent/2, func() { signals <- syscall.SIGINT })
		if !h.reached() || !h.reached() {
			t.Error("it was told while that was asked")
		}
		time.Sleep(3 * sameEvent)
		if h.reached() {
			t.Error("that was another event")
		}
	})
}
