package rankmonitor

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranksocket"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

// pickled returns messages as NVRx 0.7 sends them.
func pickled(t testing.TB) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/messages")
	if err != nil {
		t.Fatal(err)
	}
	messages := map[string][]byte{}
	for len(text) > 0 {
		name, rest, _ := bytes.Cut(text, []byte(" "))
		n := binary.BigEndian.Uint32(rest)
		messages[string(name)], text = rest[:4+n], rest[4+n:]
	}
	return messages
}

// TestMessages checks the content of each message.
func TestMessages(t *testing.T) {
	m := pickled(t)
	for name, want := range map[string]any{
		"auth": authMsg{}, "init": initMsg{true, 7}, "heartbeat": heartbeatMsg{}, "open": sectionMsg{"step", openSection, 12},
		"close": sectionMsg{"step", closeSection, -1}, "closeall": sectionMsg{"", closeAllSections, -1}, "request": controlMsg{3, int64(ActionEnd), "ECC"},
	} {
		if got, err := parseMessage(m[name][4:]); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	got, err := parseMessage(m["update"][4:])
	update, ok := got.(updateMsg)
	if err != nil || !ok || update.heartbeats.Heartbeat != 2*time.Second ||
		update.sections.Sections["step"] != 1500*time.Millisecond || update.sections.Sections["setup"] != 0 || update.sections.OutOfSection != time.Minute {
		t.Errorf("%+v, %v", got, err)
	}
}

// FuzzMessage checks that no message does harm.
func FuzzMessage(f *testing.F) {
	for _, text := range pickled(f) {
		f.Add(text[4:])
	}
	f.Add([]byte("\x80\x04cos\nsystem\n\x8c\x05touch\x85R."))
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, err := parseMessage(text); (m == nil) == (err == nil) {
			t.Error(m, err)
		}
	})
}

func dial(t *testing.T, path string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("unix", path, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// awaitEnd waits until the server has ended a connection.
func awaitEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	if got, err := io.ReadAll(conn); len(got) > 0 || err != nil && strings.Contains(err.Error(), "timeout") {
		t.Fatalf("the connection is not ended: %q, %v", got, err)
	}
}

// TestRefused checks that the server ends a connection of a stranger, and a connection with a
// message that no client sends. It continues with the other connections.
func TestRefused(t *testing.T) {
	b := newBed(t, "step:60", &Learned{})
	defer b.Close()
	messages := pickled(t)
	good := dial(t, b.Path(0))
	talks := func() {
		t.Helper()
		if _, err := good.Write(messages["auth"]); err != nil {
			t.Fatal(err)
		}
		if text, err := ranksocket.ReadFrame(good); err != nil || !bytes.Equal(text, okAnswer()[4:]) {
			t.Fatalf("%q, %v", text, err)
		}
	}
	talks()
	for name, c := range map[string]struct{ path, says, warns string }{
		"long":          {b.Path(1), "\xff\xff\xff\xff", "at most 65536"},
		"no pickle":     {b.Path(1), "\x00\x00\x00\x03abc", "cut short"},
		"another class": {b.Path(1), "\x00\x00\x00\x0e\x80\x02cos\nsystem\n.", "no message"},
		"too early":     {b.Path(1), string(messages["heartbeat"]), "before its session"},
		"misplaced":     {b.Launcher(), string(messages["auth"]), "no message"},
		"another rank":  {b.Launcher(), string(messages["request"]), "no message"},
	} {
		conn := dial(t, c.path)
		if _, err := io.WriteString(conn, c.says); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, conn)
		if err := <-b.warns; !strings.Contains(err.Error(), c.warns) {
			t.Errorf("%s: warning %q, want one with %q", name, err, c.warns)
		}
	}
	b.mine.Store(1)
	awaitEnd(t, dial(t, b.Path(1)))
	if err := <-b.warns; !strings.Contains(err.Error(), "is not one of the ranks here") {
		t.Error(err)
	}
	talks()
}

// TestOthersLookForAListener checks that a process that only asks whether the socket has a listener
// causes no warning.
func TestOthersLookForAListener(t *testing.T) {
	b := newBed(t, "on", &Learned{})
	defer b.Close()
	talk := func() net.Conn {
		conn := dial(t, b.Path(0))
		if _, err := conn.Write(pickled(t)["auth"]); err != nil {
			t.Fatal(err)
		}
		if _, err := ranksocket.ReadFrame(conn); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	var all []net.Conn
	for range ranksocket.MaxConns { // the server accepts no connection beyond these
		all = append(all, talk())
	}
	b.mine.Store(1)
	dial(t, b.Path(0)).Close()
	stays := dial(t, b.Path(0))
	all[0].Close()
	awaitEnd(t, stays)
	b.mine.Store(0)
	talk() // by now the server has examined the earlier connections
	if len(b.warns) != 1 {
		t.Errorf("%d warnings, want one of the process that stays", len(b.warns))
	}
}

// TestWarningsAreBounded checks that a client that keeps sending nonsense fills no log.
func TestWarningsAreBounded(t *testing.T) {
	b := newBed(t, "on", &Learned{})
	defer b.Close()
	for range ranksocket.MaxWarnings + 5 {
		conn := dial(t, b.Path(0))
		if _, err := io.WriteString(conn, "\x00\x00\x00\x03abc"); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, conn)
	}
	if len(b.warns) != ranksocket.MaxWarnings {
		t.Errorf("%d warnings", len(b.warns))
	}
}

// TestRules checks by when a rank must send something.
func TestRules(t *testing.T) {
	at := time.Unix(1000, 0)
	sec := func(n int) time.Time { return at.Add(time.Duration(n) * time.Second) }
	start := func(config string, newer bool) *session {
		c, err := Parse(config)
		if err != nil {
			t.Fatal(err)
		}
		return newSession(&c.Limits, c.WarmUp, newer, at)
	}
	step := func(s *session, iteration int64, now int) {
		s.section(sectionMsg{stepSection, openSection, iteration}, sec(now))
	}
	for name, c := range map[string]struct {
		config string
		newer  bool
		says   func(s *session)
		does   string
		by     int
	}{
		"no limit":          {"on", true, func(*session) {}, "between sections", -1},
		"no heartbeat":      {"initial_rank_heartbeat_timeout=30,rank_heartbeat_timeout=20", true, func(*session) {}, "before its first heartbeat, which may take 30s", 30},
		"heartbeats":        {"initial_rank_heartbeat_timeout=30,rank_heartbeat_timeout=20", true, func(s *session) { s.heartbeat(sec(25)) }, "after a heartbeat, which may take 20s", 45},
		"section":           {"step:60", true, func(s *session) { step(s, -1, 5) }, "in section step, which may take 1m0s", 65},
		"section without":   {"step:60,save:none", true, func(s *session) { s.section(sectionMsg{"save", openSection, -1}, sec(5)) }, "in section save", -1},
		"the sooner of two": {"step:60,save:10", true, func(s *session) { step(s, -1, 5); s.section(sectionMsg{"save", openSection, -1}, sec(8)) }, "in section save, which may take 10s", 18},
		"closed":            {"step:60,rank_out_of_section_timeout=9", true, func(s *session) { step(s, -1, 5); s.section(sectionMsg{stepSection, closeSection, -1}, sec(8)) }, "between sections, which may take 9s", 17},
		"all closed":        {"step:60,rank_out_of_section_timeout=9", false, func(s *session) { step(s, -1, 5); s.section(sectionMsg{"", closeAllSections, -1}, sec(7)) }, "between sections, which may take 9s", 16},
		"before any":        {"step:60,rank_out_of_section_timeout=9", false, func(*session) {}, "between sections, which may take 9s", 9},
		"before the first":  {"step:60,rank_out_of_section_timeout=9", true, func(*session) {}, "between sections", -1},
		"with a warm-up":    {"step:60,warmup:90,rank_out_of_section_timeout=9", true, func(*session) {}, "between sections, which may take 9s", 9},
		"in the warm-up":    {"step:60,warmup:90", true, func(s *session) { step(s, 100, 5) }, "in section step, which may take 1m30s", 95},
		"after the warm-up": {"step:60,warmup:90,num_warmup_iterations=2", true, func(s *session) {
			step(s, 100, 5)
			s.section(sectionMsg{stepSection, closeSection, -1}, sec(6))
			step(s, 102, 7)
		}, "in section step, which may take 1m0s", 67},
		"open twice":         {"step:60", true, func(s *session) { step(s, -1, 5); step(s, -1, 9) }, "in section step, which may take 1m0s", 65},
		"unknown to the job": {"step:60", false, func(s *session) { s.section(sectionMsg{"own", openSection, -1}, sec(5)) }, "in section own", -1},
	} {
		s := start(c.config, c.newer)
		c.says(s)
		got, by := s.next(), -1
		if !got.by.IsZero() {
			by = int(got.by.Sub(at) / time.Second)
		}
		if got.does != c.does || by != c.by {
			t.Errorf("%s: %q until %d; want %q until %d", name, got.does, by, c.does, c.by)
		}
	}
}

func TestSectionsAreBounded(t *testing.T) {
	s := newSession(&Limits{}, 0, true, time.Time{})
	for i := range 2 * maxSections {
		s.section(sectionMsg{strings.Repeat("s", i), openSection, -1}, time.Time{})
	}
	if n := len(s.open); n != maxSections {
		t.Errorf("%d sections are open", n)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       `"": SECTION:SECONDS`,
		"step":                                   `"step": SECTION:SECONDS`,
		"step:soon":                              `section step: "soon": seconds above 0, or none`,
		"step:-1":                                `seconds above 0`,
		"step:nan":                               `seconds above 0`,
		"rank_heartbeat=5":                       `"rank_heartbeat" is no key of the rank monitor`,
		"safety_factor=0":                        `safety_factor: "0": a number above 0`,
		"num_warmup_iterations=-1":               `num_warmup_iterations: "-1": a number of iterations`,
		"install_exception_hook=maybe":           `install_exception_hook: "maybe": true or false`,
		"skip_section_response=2":                `skip_section_response`,
		strings.Repeat("s", maxName+1) + ":none": `names of up to 64 bytes`,
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	c, err := Parse("setup : 600, step: none, safety_factor = 2")
	if err != nil || len(c.Sections) != 2 || c.Sections["setup"] != 10*time.Minute || c.Safety != 2 {
		t.Errorf("spaces beside names and values: %+v, %v", c, err)
	}
}
