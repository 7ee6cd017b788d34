package ports

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text, err string
		want      Range
	}{
		{"", "", Range{}},
		{"30000:30100", "", Range{30000, 30100}},
		{"1:65535", "", Range{1, 65535}},
		{"7:7", "", Range{7, 7}},
		{"5:3", "it ends before it begins; 3:5 is", Range{}},
		{"0:10", `"0" is no port`, Range{}},
		{"70000", "FIRST:LAST, such as", Range{}},
		{"30000", "FIRST:LAST, such as", Range{}},
		{"30000:70000", `"70000" is no port`, Range{}},
		{"a:b", `"a" is no port`, Range{}},
		{"1:2:3", `"2:3" is no port`, Range{}},
		{":", `"" is no port`, Range{}},
		{"30000-30100", "FIRST:LAST, such as", Range{}},
	} {
		got, err := Parse(c.text)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q is %v, %v", c.text, got, err)
		}
		if err == nil && got.String() != c.text {
			t.Errorf("%q is written as %q", c.text, got)
		}
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		a, b, want Range
		none       bool
	}{
		{},
		{a: Range{10, 20}, want: Range{10, 20}},
		{b: Range{10, 20}, want: Range{10, 20}},
		{a: Range{10, 20}, b: Range{15, 30}, want: Range{15, 20}},
		{a: Range{10, 20}, b: Range{20, 30}, want: Range{20, 20}},
		{a: Range{10, 20}, b: Range{21, 30}, none: true},
	} {
		got, err := c.a.Within(c.b)
		if got != c.want || (err != nil) != c.none {
			t.Errorf("%v within %v is %v, %v", c.a, c.b, got, err)
		}
	}
}

// ownAddr returns an address of this machine that no other test uses.
func ownAddr() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// All ports of a range are found, the first port last. After that the error says that the range is
// in use. A port that is given back is found again.
func TestListen(t *testing.T) {
	host := ownAddr()
	r := Range{19000, 19004}
	seen := map[int]net.Listener{}
	for i := range r.Size() {
		l, err := r.Listen(t.Context(), host)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		if seen[port] != nil || port < r.First || port > r.Last || (port == r.First) != (i == r.Size()-1) {
			t.Errorf("the %d. port is %d", i, port)
		}
		seen[port] = l
	}
	_, err := r.Listen(t.Context(), host)
	if busy, ok := errors.AsType[*BusyError](err); !ok || busy.Range != r ||
		err.Error() != "all 5 ports of 19000:19004 (--port-range) are in use at "+host+"; give a wider range, or end what has them (ss -ltnp shows it)" {
		t.Errorf("a busy range: %v", err)
	}
	seen[19002].Close()
	l, err := r.Listen(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if port := l.Addr().(*net.TCPAddr).Port; port != 19002 {
		t.Errorf("the port that was free is 19002, and %d was taken", port)
	}
	if _, err := r.Listen(t.Context(), "192.0.2.1"); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("an address of another machine: %v", err)
	}
}

func TestListenWithoutARange(t *testing.T) {
	l, err := Range{}.Listen(t.Context(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	one, host := Range{19000, 19000}, ownAddr()
	for range 2 {
		if l, err = one.Listen(t.Context(), host); err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

func TestWhy(t *testing.T) {
	_, refused := net.Dial("tcp", "127.9.83.3:1")
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, late := (&net.Dialer{}).DialContext(ctx, "tcp", "127.9.83.3:1")
	_, unknown := net.Dial("tcp", "127.9.83.3:http-or-not")
	for _, c := range []struct {
		err  error
		want string
	}{{refused, "nothing listens there, or a firewall rejects"}, {late, "a firewall drops"}, {unknown, ""}, {&net.DNSError{IsTimeout: true}, ""}, {syscall.EHOSTUNREACH, "no machine has"}} {
		if got := Why(c.err); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}
