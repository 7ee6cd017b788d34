package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const limit = time.Minute

// site is a provider with its nodes. Several workers may call its methods.
type site struct {
	mu sync.Mutex
	// nodes has, for each node, the time at which it was created. lag is for how long the site's
	// lists lack a new node.
	nodes map[string]time.Time
	lag   time.Duration
	// made and ended count nodes by tag, and calls counts calls.
	made, ended map[string]int
	calls       int
	largest     int
	// create, list and remove are called at the beginning of each call, and may fail or hang.
	create, list, remove func(context.Context) error
}

func newSite() *site {
	well := func(context.Context) error { return nil }
	return &site{nodes: map[string]time.Time{}, made: map[string]int{}, ended: map[string]int{}, create: well, list: well, remove: well}
}

// hang acts like a provider that does not answer.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// begin counts a call, and makes it fail or hang if the test wants that.
func (s *site) begin(ctx context.Context, first *func(context.Context) error, tags []string) error {
	s.mu.Lock()
	s.calls++
	s.largest = max(s.largest, len(tags))
	do := *first
	s.mu.Unlock()
	return do(ctx)
}

func (s *site) Create(ctx context.Context, tags []string) error {
	err := s.begin(ctx, &s.create, tags)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tag := range tags {
		if _, there := s.nodes[tag]; !there && (err == nil || strings.HasSuffix(tag, "-some")) {
			s.nodes[tag] = time.Now()
			s.made[tag]++
		}
	}
	return err
}

func (s *site) List(ctx context.Context) (map[string]string, error) {
	if err := s.begin(ctx, &s.list, nil); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.visible(), nil
}

func (s *site) visible() map[string]string {
	states := map[string]string{}
	for tag, since := range s.nodes {
		if time.Since(since) >= s.lag {
			states[tag] = "running"
		}
	}
	return states
}

// Delete deletes only nodes that the lists have.
func (s *site) Delete(ctx context.Context, tags []string) error {
	if err := s.begin(ctx, &s.remove, tags); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tag := range tags {
		if _, there := s.visible()[tag]; there {
			delete(s.nodes, tag)
			s.ended[tag]++
		}
	}
	return nil
}

// set changes what happens first in calls.
func (s *site) set(what *func(context.Context) error, do func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*what = do
}

// has returns the tags of the site's nodes.
func (s *site) has() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(s.nodes)), " ")
}

// asker plays the coordinator of a worker.
type asker struct {
	*Worker
	mu      sync.Mutex
	gone    map[string]string
	states  map[string]string
	trouble error
	rounds  int
}

// ask starts a worker.
func ask(t *testing.T, s *site) *asker {
	a := &asker{gone: map[string]string{}}
	a.Worker = New(s, limit, func(r Report) {
		a.mu.Lock()
		defer a.mu.Unlock()
		maps.Copy(a.gone, r.Gone)
		a.states, a.trouble = r.States, r.Err
		a.rounds++
	})
	go a.Run(t.Context())
	return a
}

// after returns the reports of a worker after some time: which nodes are gone, and the error.
func (a *asker) after(d time.Duration) (gone map[string]string, trouble string) {
	time.Sleep(d)
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.trouble != nil {
		trouble = a.trouble.Error()
	}
	return maps.Clone(a.gone), trouble
}

// want returns tags that a provider should have, as of now.
func want(tags ...string) (all []Wanted) {
	for _, tag := range tags {
		all = append(all, Wanted{Tag: tag, Requested: time.Now()})
	}
	return all
}

// given returns the same tags as nodes that were given back.
func given(all []Wanted) []Wanted {
	all = slices.Clone(all)
	for i := range all {
		all[i].Delete = true
	}
	return all
}

func expect(t *testing.T, want string, got ...any) {
	t.Helper()
	if text := strings.TrimSuffix(fmt.Sprintln(got...), "\n"); text != want {
		t.Errorf("%s, want %s", text, want)
	}
}

func TestCreateAndDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		a := ask(t, s)
		all := want("a", "b")
		a.Want(all)
		gone, trouble := a.after(time.Second)
		expect(t, "map[]  a b", gone, trouble, s.has())
		a.after(time.Hour)
		expect(t, "map[a:running b:running] map[a:1 b:1]", a.states, s.made)
		a.Want(given(all))
		gone, trouble = a.after(2 * pollEvery)
		expect(t, "map[a:it was deleted b:it was deleted]   map[a:1 b:1]", gone, trouble, s.has(), s.ended)
		a.Want(nil)
		a.after(time.Second)
		calls := s.calls
		a.after(time.Hour)
		expect(t, fmt.Sprint(calls), s.calls) // no calls while nothing is wanted
	})
}

// TestManyAtOnce checks that no call has more than maxBatch tags.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		a := ask(t, s)
		var tags []string
		for i := range 3*maxBatch + 1 {
			tags = append(tags, fmt.Sprint("n", i))
		}
		all := want(tags...)
		a.Want(all)
		a.after(time.Second)
		expect(t, fmt.Sprint(len(tags)), len(s.nodes))
		a.Want(given(all))
		gone, _ := a.after(time.Minute)
		expect(t, fmt.Sprint(0, len(tags), maxBatch), len(s.nodes), len(gone), s.largest)
	})
}

// TestRefusal checks that refused nodes are reported as gone, with the reason. A node that was made
// nevertheless is not.
func TestRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		s.create = func(context.Context) error { return errors.New("quota") }
		a := ask(t, s)
		a.Want(want("a", "b-some"))
		gone, trouble := a.after(time.Second)
		expect(t, "map[a:quota]  b-some", gone, trouble, s.has())
	})
}

// TestHangs checks that each call ends at its limit. Work that the call has done before still
// counts.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = "the provider did not answer within 1m0s"
		s := newSite()
		s.list = hang
		a := ask(t, s)
		all := want("a", "b-some")
		a.Want(all)
		gone, trouble := a.after(limit)
		expect(t, "map[] cannot list the nodes: "+late, gone, trouble)

		s.set(&s.list, newSite().list)
		s.set(&s.create, hang)
		gone, trouble = a.after(pollEvery + limit)
		expect(t, "map[a:"+late+"]  b-some", gone, trouble, s.has())

		s.set(&s.remove, hang)
		a.Want(given(all[1:]))
		_, trouble = a.after(limit)
		expect(t, "cannot delete b-some: "+late+" b-some", trouble, s.has())
		s.set(&s.remove, newSite().remove)
		gone, trouble = a.after(settleTime)
		expect(t, "it was deleted  ", gone["b-some"], trouble, s.has())
	})
}

// TestLostAnswer has a node whose creation got no answer, while the list also fails. The node is
// not created again, and is not reported as gone.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		s.create = func(context.Context) error {
			s.set(&s.list, func(context.Context) error { return errors.New("no route") })
			return errors.New("cut off")
		}
		a := ask(t, s)
		a.Want(want("a-some", "b"))
		gone, trouble := a.after(time.Second)
		expect(t, "map[] cut off\ncannot list the nodes: no route", gone, trouble)
		a.after(time.Hour)
		s.set(&s.list, newSite().list)
		gone, trouble = a.after(pollEvery)
		expect(t, "map[b:the provider does not have it any more]  a-some map[a-some:1]", gone, trouble, s.has(), s.made)
	})
}

// TestALostNode checks that a node is reported as gone once the lists have lacked it for long
// enough.
func TestALostNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		s.lag = settleTime - time.Second
		a := ask(t, s)
		a.Want(want("a"))
		if gone, _ := a.after(settleTime + pollEvery); len(gone) > 0 {
			t.Fatalf("gone: %v", gone)
		}
		s.mu.Lock()
		delete(s.nodes, "a") // a spot instance, before its agent has joined
		s.mu.Unlock()
		gone, _ := a.after(pollEvery)
		expect(t, "map[a:the provider does not have it any more] 1", gone, s.made["a"])
	})
}

// TestGivenBackBeforeItIsListed gives back a node before the lists have it. The node is deleted
// once it is listed, even by a coordinator that has not created it.
func TestGivenBackBeforeItIsListed(t *testing.T) {
	for name, next := range map[string]bool{"same coordinator": false, "next coordinator": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite()
				s.lag = settleTime - time.Second
				a := ask(t, s)
				all := want("a")
				a.Want(all)
				a.after(time.Second)
				expect(t, "a", s.has())
				if next {
					a.Want(nil)
					a = ask(t, s)
				}
				a.Want(given(all))
				if gone, _ := a.after(settleTime - 2*time.Second); len(gone) > 0 {
					t.Errorf("%v, while the provider has it", gone)
				}
				gone, _ := a.after(3 * pollEvery)
				expect(t, "map[a:it was deleted] ", gone, s.has())
			})
		})
	}
}

// TestTwoCoordinators checks that two coordinators with the same tags create each node only once.
// Both learn that it is gone.
func TestTwoCoordinators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		slow := func(context.Context) error {
			time.Sleep(time.Second)
			return nil
		}
		s.create, s.list, s.remove = slow, slow, slow
		a, b := ask(t, s), ask(t, s)
		all := want("a", "b")
		a.Want(all)
		b.Want(all)
		a.after(time.Minute)
		expect(t, "map[a:1 b:1] a b", s.made, s.has())
		a.Want(given(all))
		time.Sleep(time.Second / 2)
		b.Want(given(all))
		one, _ := a.after(time.Minute)
		two, _ := b.after(0)
		expect(t, "2 2 map[a:1 b:1] map[a:1 b:1]", len(one), len(two), s.ended, s.made)
	})
}

// TestTheEndOfRun checks that the end of Run ends a hanging call, and that this causes no report.
func TestTheEndOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		s.create = hang
		ctx, cancel := context.WithCancel(t.Context())
		w := New(s, limit, func(r Report) { t.Errorf("it reports %+v", r) })
		ended := make(chan struct{})
		go func() {
			w.Run(ctx)
			close(ended)
		}()
		w.Want(want("a"))
		synctest.Wait()
		cancel()
		<-ended
	})
}

// TestTheClockIsSetBack checks that the worker does not wait until the future time of a request.
func TestTheClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := ask(t, newSite())
		a.Want([]Wanted{{Tag: "a", Delete: true, Requested: time.Now().Add(24 * time.Hour)}})
		gone, _ := a.after(settleTime + 2*pollEvery)
		expect(t, "map[a:it was deleted]", gone)
	})
}

// deliverer is a site that starts the agents of its nodes.
type deliverer struct {
	*site
	states, failed map[string]string
	asked          string
}

func (d *deliverer) Deliver(_ context.Context, tags []string) (states, failed map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = strings.Join(tags, " ")
	return d.states, d.failed
}

// delivered returns the nodes of the last delivery.
func (d *deliverer) delivered() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

// TestDeliver checks that Deliver is called for nodes that exist and are wanted. A node on which
// Deliver has failed is reported as gone.
func TestDeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deliverer{site: newSite(), states: map[string]string{"a": "setup"}, failed: map[string]string{"b": "setup has failed"}}
		a := &asker{gone: map[string]string{}}
		a.Worker = New(d, limit, func(r Report) {
			a.mu.Lock()
			defer a.mu.Unlock()
			maps.Copy(a.gone, r.Gone)
			a.states = r.States
		})
		go a.Run(t.Context())
		all := want("a", "b", "c")
		all[2].Delete = true
		a.Want(all)
		a.after(time.Second)
		expect(t, "", d.delivered())
		gone, _ := a.after(pollEvery)
		expect(t, "a b map[a:setup b:running] map[b:setup has failed]", d.delivered(), a.states, gone)
	})
}
