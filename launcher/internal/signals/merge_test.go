package signals

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneEvent: stop signals within a second of each other are one event, even if they differ, and
// even if nothing receives them yet.
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
		"a signal that stops too":   {[]told{{0, usr2}, {ms, term}}, []os.Signal{stop{usr2}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals, done := make(chan os.Signal), make(chan struct{})
				m := Merge(signals, []os.Signal{usr2, term}, done)
				for _, s := range c.told { // nothing receives them yet
					time.Sleep(s.after)
					signals <- s.sig
				}
				close(signals)
				var got []os.Signal
				for s := range m.C {
					got = append(got, s)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("got %v, want %v", got, c.want)
				}
				close(done)
			})
		})
	}
}

// TestJustStopped distinguishes a stop signal of this moment from an earlier one.
func TestJustStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, done := make(chan os.Signal, 1), make(chan struct{})
		defer close(done)
		m := Merge(signals, nil, done)
		if m.JustStopped() {
			t.Error("nothing has stopped it")
		}
		time.AfterFunc(oneEvent/2, func() { signals <- syscall.SIGINT })
		if !m.JustStopped() || !m.JustStopped() {
			t.Error("it stopped during the question")
		}
		time.Sleep(3 * oneEvent)
		if m.JustStopped() {
			t.Error("that was another event")
		}
	})
}
