package console

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// terminal is a pseudoterminal that shows as much of ECMA-48 as the console uses.
type terminal struct {
	t *testing.T
	// end is for programs.
	end *os.File

	mu       sync.Mutex
	rows     []string
	row, col int
	changed  chan struct{}
}

func openTerminal(t *testing.T, height uint16) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: 40})
	}
	if err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &terminal{t: t, end: end, rows: []string{""}, changed: make(chan struct{}, 1)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			if err != nil { // EIO: the other end is closed
				return
			}
			s.take(string(b[:n]))
		}
	}()
	t.Cleanup(func() {
		end.Close()
		<-read
		master.Close()
	})
	return s
}

// take shows output. The console never splits an escape sequence between writes.
func (s *terminal) take(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for text != "" {
		switch {
		case text[0] == '\r':
			s.col = 0
		case text[0] == '\n':
			if s.row++; s.row == len(s.rows) {
				s.rows = append(s.rows, "")
			}
		case text[0] == '\x1b':
			n := strings.IndexAny(text, "AJhlm")
			s.control(text[2:n], text[n])
			text = text[n:]
		default:
			line := s.rows[s.row] + strings.Repeat(" ", max(0, s.col-len(s.rows[s.row])))
			s.rows[s.row] = line[:s.col] + text[:1] + line[min(len(line), s.col+1):]
			s.col++
		}
		text = text[1:]
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *terminal) control(parameter string, final byte) {
	switch final {
	case 'A':
		var up int
		if _, err := fmt.Sscan(parameter, &up); err != nil || up > s.row {
			s.t.Errorf("up by %q from row %d", parameter, s.row)
			return
		}
		s.row -= up
	case 'J':
		s.rows[s.row] = s.rows[s.row][:min(s.col, len(s.rows[s.row]))]
		s.rows = s.rows[:s.row+1]
	}
}

// shows waits until the terminal shows these lines.
func (s *terminal) shows(want ...string) {
	s.t.Helper()
	for limit := time.After(patienceOfTests); ; {
		s.mu.Lock()
		got := strings.Join(s.rows, "\n")
		s.mu.Unlock()
		if got == strings.Join(want, "\n") {
			return
		}
		select {
		case <-s.changed:
		case <-limit:
			s.t.Fatalf("the terminal shows\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	}
}

const patienceOfTests = 30 * time.Second

// TestViewerTakesItsRowsAway: a finished line leaves the bottom of the terminal, and no row stays
// behind.
func TestViewerTakesItsRowsAway(t *testing.T) {
	t.Setenv("TERM", "xterm")
	s := openTerminal(t, 8)
	c := New(s.end, s.end)
	v := NewViewer(c, prefixOf)
	add := func(rank int, text string) {
		v.Add(pipetest.Soon(t), Source{0, rank, Stdout}, []byte(text))
	}
	for step := range 3 {
		add(0, fmt.Sprint("step ", step))
		add(1, fmt.Sprint("step ", step))
		add(0, "\n")
		add(1, "\n")
	}
	add(1, "10%")
	lines := []string{"[r0] step 0", "[r1] step 0", "[r0] step 1", "[r1] step 1", "[r0] step 2", "[r1] step 2"}
	s.shows(append(lines[:6:6], "[r1] 10%")...)
	add(1, "\r20%")
	s.shows(append(lines[:6:6], "[r1] 20%")...)
	if rows := len(c.out.live.rows); rows != 1 {
		t.Errorf("%d rows, want that of rank 1 alone", rows)
	}
	v.Close(pipetest.Soon(t))
	if rows := len(c.out.live.rows); rows != 0 {
		t.Errorf("%d rows of lines that have ended", rows)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	s.shows(append(lines[:6:6], "[r1] 20%", "")...)
}
