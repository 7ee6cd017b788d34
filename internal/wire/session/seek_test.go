package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/placement"
)

// town has addresses with a leader, with another process, or with none, in virtual time.
type town struct {
	t    *testing.T
	says map[string]string

	mu sync.Mutex
	// asked are the places in the order in which an agent asked them, and hellos its messages
	// there.
	asked  []string
	hellos map[string]*pb.Hello
}

// place is a server that answers as the town says: it leads ("leads"), does not answer ("mute"), or
// names a leader ("" for none).
type place struct {
	pb.UnimplementedRendezvousServer
	*town
	addr string
}

func (p place) Join(stream pb.Rendezvous_JoinServer) error {
	msg, err := stream.Recv()
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.hellos[p.addr] = msg.GetHello()
	p.mu.Unlock()
	switch says := p.says[p.addr]; says {
	case "leads":
		err := stream.Send(&pb.ToAgent{Body: &pb.ToAgent_Welcome{Welcome: &pb.Welcome{Lease: durationpb.New(wire.DefaultLease)}}})
		<-stream.Context().Done()
		return err
	case "mute":
		<-stream.Context().Done()
		return nil
	default:
		return (&wire.ElsewhereError{Why: "not here", Addrs: []string{"b:1"}, Leader: says, Wait: time.Hour}).Status()
	}
}

func (w *town) dial(ctx context.Context, addr string) (net.Conn, error) {
	w.mu.Lock()
	w.asked = append(w.asked, strings.TrimSuffix(addr, ":1"))
	w.mu.Unlock()
	if says, there := w.says[addr]; !there || says == "dead" {
		return nil, errors.New("connection refused")
	}
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	pb.RegisterRendezvousServer(srv, place{town: w, addr: addr})
	go func() { _ = srv.Serve(l) }() // it ends with the test
	w.t.Cleanup(srv.Stop)
	return l.DialContext(ctx)
}

// TestWhichRedirectsAreFollowed checks which addresses an agent without its coordinator tries, and
// that wrong answers never keep it from the leader.
func TestWhichRedirectsAreFollowed(t *testing.T) {
	for _, c := range []struct {
		name, list string
		says       map[string]string
		want       string
	}{
		{"a named address comes next", "a b x y c", map[string]string{"b:1": "c:1", "x:1": "", "y:1": "", "c:1": "leads"}, "a b c"},
		{"one that is not in the list", "a b x", map[string]string{"b:1": "z:1", "x:1": "", "z:1": "leads"}, "a b z"},
		{"one with newer knowledge", "a b c d x", map[string]string{"b:1": "c:1", "c:1": "x:1", "d:1": "", "x:1": "leads"}, "a b c x"},
		{"a dead one is named", "a b c", map[string]string{"b:1": "a:1", "c:1": "leads"}, "a b a c"},
		{"a mute one is named", "a b c", map[string]string{"b:1": "m:1", "m:1": "mute", "c:1": "leads"}, "a b m c"},
		{"one names itself", "a b c", map[string]string{"b:1": "b:1", "c:1": "leads"}, "a b c"},
		{"no address is named, as by older versions", "a b c", map[string]string{"b:1": "", "c:1": "leads"}, "a b c"},
		{"what is named is no place", "a b c", map[string]string{"b:1": "c", "c:1": "leads"}, "a b c"},
		{"too long a name", "a b c", map[string]string{"b:1": strings.Repeat("c", 300) + ":1", "c:1": "leads"}, "a b c"},
		{"two name each other", "a b c d", map[string]string{"b:1": "c:1", "c:1": "b:1", "d:1": "leads"}, "a b c b c b c d"},
		{"all name another one, that is dead", "a b c d", map[string]string{"b:1": "e:1", "c:1": "e:1", "d:1": "leads"}, "a b e c e d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, epoch := range []string{"e", ""} { // the epoch of an agent that was a member, and of a new agent
				synctest.Test(t, func(t *testing.T) {
					w := &town{t: t, says: c.says, hellos: map[string]*pb.Hello{}}
					list := strings.Fields(strings.ReplaceAll(c.list+" ", " ", ":1 "))
					if epoch == "" && c.list != "a b c" {
						return // a new agent continues with what it learns: from where it began to b
					}
					start := time.Now()
					d := dialer{
						Options: Options{
							Node: placement.Node{Name: "n"}, DialAt: w.dial, Voter: nonVoter{}, Warn: func(error) {},
							Clock: func() time.Duration { return time.Since(start) },
						},
						epoch: epoch, lease: wire.DefaultLease, voters: list, next: firstAgain, home: "c:1",
					}
					ctx, cancel := context.WithTimeout(t.Context(), wire.DefaultLease)
					defer cancel()
					l, err := d.connect(ctx)
					if err != nil {
						t.Fatal(err, w.asked)
					}
					l.close()
					if took := time.Since(start); took > wire.DefaultLease*3/4 {
						t.Errorf("it took %v", took)
					}
					if got := strings.Join(w.asked, " "); epoch != "" && got != c.want {
						t.Errorf("it turned to %s, want %s", got, c.want)
					}
					if h := w.hellos["b:1"]; h.GetLost() == "" || !slices.Contains(w.asked, strings.TrimSuffix(h.GetLost(), ":1")) ||
						h.GetPatience().AsDuration() <= 0 {
						t.Errorf("its hello: %v", h)
					}
				})
			}
		})
	}
}

// TestScatter checks that agents do not all turn to the same voter when another voter is lost, and
// that each agent tries all voters.
func TestScatter(t *testing.T) {
	first := map[string]int{}
	for i := range 1000 {
		d := dialer{Options: Options{Node: placement.Node{Name: fmt.Sprint("n", i)}}, voters: []string{"a", "b", "c", "d", "e"}}
		d.scatter()
		first[d.voters[1]]++
		all := slices.Sorted(slices.Values(d.voters))
		if d.voters[0] != "a" || strings.Join(all, "") != "abcde" {
			t.Fatal(d.voters)
		}
	}
	for _, name := range []string{"b", "c", "d", "e"} {
		if n := first[name]; n < 150 || n > 350 {
			t.Errorf("%d of 1000 turn to %s first", n, name)
		}
	}
}
