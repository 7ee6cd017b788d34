package guard

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/helper/frame"
	"github.com/golaunch/golaunch/internal/process/proc/internal/cgroup"
	"github.com/golaunch/golaunch/internal/process/proc/internal/guardian"
	"github.com/golaunch/golaunch/internal/process/proc/internal/sweep"
)

// TestWhatANewGuardianHears: the order of its messages matters, and session 0, as in a PID
// namespace without the session's leader, counts as a session too.
func TestWhatANewGuardianHears(t *testing.T) {
	for _, subreaper := range []bool{true, false} {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		g := &Guard{
			opts: Options{Record: "record", Subreaper: subreaper}, sock: fds[0],
			trails: map[string]sweep.Trail{"m": {Marker: "m", Sessions: []int{7}}}, oom: cgroup.NewOOMCounter(""),
		}
		g.lease.Store(5)
		g.sendAll()
		frame.Close(fds[:1])
		var heard [][]string
		for {
			body, _, err := frame.Receive(frame.FD(fds[1]), guardian.MaxMessage, guardian.MaxHeld)
			if err != nil {
				break
			}
			words := frame.Split(body)
			heard = append(heard, words[:min(len(words), 3)])
		}
		frame.Close(fds[1:])
		want := [][]string{{"origin", "", "record"}, {"scope", "m", ""}, {"session", "m", "7"}, {"hold"}, {"lease", "5"}}
		if subreaper {
			want = slices.Insert(want, 1, []string{"adopter", strconv.Itoa(os.Getpid()), "0"})
		}
		if !slices.EqualFunc(heard, want, func(a, b []string) bool { return slices.Equal(a[:min(len(a), len(b))], b) }) {
			t.Errorf("subreaper %v: it gets %q, want %q", subreaper, heard, want)
		}
	}
}

// TestAGuardianThatDoesNotRead checks how many messages a guardian may be behind. With too few, a
// start would wait for the guardian; with too many, nothing would notice that it hangs.
func TestAGuardianThatDoesNotRead(t *testing.T) {
	sock, theirs, err := newSocket()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	defer unix.Close(sock)
	if err := unix.SetNonblock(sock, true); err != nil {
		t.Fatal(err)
	}
	message, unread := frame.Words([]string{"lease", "1234567890123456789", "12345"}), 0
	for err == nil {
		if err = frame.Send(frame.FD(sock), message); err == nil {
			unread++
		}
	}
	if !errors.Is(err, unix.EAGAIN) || unread < 13 || unread > 40 {
		t.Errorf("it may be %d messages behind (%v)", unread, err)
	}
}
