package snapshot

import (
	"errors"
	"math"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type color string

type leaf struct {
	Name  string
	at    time.Time
	addr  netip.Addr
	count int8
	ratio float64
	tint  color
}

// graph has values of all kinds that a state may have, and a pointer back to itself.
type graph struct {
	leaf
	self   *graph
	others []*graph
	byName map[string]*leaf
	byAddr map[netip.Addr]int
	one    map[struct{ A, B int }]bool
	raw    []byte
	fixed  [3]uint16
	Lost   func() `snapshot:"-"`
}

func draw(t *rapid.T) *graph {
	leaves := make([]*leaf, rapid.IntRange(1, 4).Draw(t, "leaves"))
	for i := range leaves {
		leaves[i] = &leaf{
			Name: rapid.String().Draw(t, "name"), at: time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "at"), 7).UTC(),
			addr:  netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "addr"))),
			count: rapid.Int8().Draw(t, "count"), ratio: rapid.Float64().Draw(t, "ratio"), tint: "red",
		}
	}
	g := &graph{leaf: *leaves[0], byName: map[string]*leaf{}, byAddr: map[netip.Addr]int{{}: -1}, one: map[struct{ A, B int }]bool{{1, 2}: true, {-1, 2}: false}}
	g.self = g
	for range rapid.IntRange(0, 3).Draw(t, "others") {
		g.others = append(g.others, &graph{self: g, leaf: *leaves[0], fixed: [3]uint16{1, 0, math.MaxUint16}, raw: rapid.SliceOf(rapid.Byte()).Draw(t, "raw")})
	}
	g.others = append(g.others, g, nil)
	for i, l := range leaves {
		g.byName[l.Name] = l
		g.byAddr[l.addr] = i
	}
	return g
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := draw(t)
		b := Encode(g)
		if string(Encode(g)) != string(b) {
			t.Fatal("the same graph gives other bytes")
		}
		var again graph
		if err := Decode(b, &again); err != nil {
			t.Fatal(err)
		}
		if again.self == nil || again.self.self != again.self || again.self.others[len(g.others)-2] != again.self {
			t.Fatal("a pointer is not shared any more")
		}
		if !reflect.DeepEqual(*g.self, *again.self) {
			t.Fatalf("got  %+v\nwant %+v", again, *g)
		}
		if cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut"); Decode(b[:cut], new(graph)) == nil {
			t.Fatalf("the first %d bytes of %d are taken for the whole", cut, len(b))
		}
	})
}

func TestOtherTypesAreRefused(t *testing.T) {
	type other struct{ Name, Surname string }
	if err := Decode(Encode(&leaf{}), new(other)); !errors.Is(err, ErrTypes) {
		t.Errorf("%v", err)
	}
	if err := Decode(append(Encode(&leaf{}), 0), new(leaf)); err == nil {
		t.Error("what follows the end is taken")
	}
	if err := Decode(nil, new(leaf)); !errors.Is(err, ErrTypes) {
		t.Errorf("%v", err)
	}
}

func TestWhatCannotBeWritten(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a function was written")
		}
	}()
	Encode(&struct{ f func() }{})
}

func TestPointersIntoTheMiddle(t *testing.T) {
	type outer struct {
		in leaf
		at *leaf
	}
	o := &outer{}
	if err := Check(o); err != nil {
		t.Error(err)
	}
	o.at = &o.in
	if Check(o) == nil {
		t.Error("a value would be there twice")
	}
	list := []leaf{{}, {}}
	if Check(&struct {
		list []leaf
		at   *leaf
	}{list, &list[1]}) == nil {
		t.Error("a value would be there twice")
	}
}

func FuzzDecode(f *testing.F) {
	g := &graph{byName: map[string]*leaf{"a": {}}}
	g.self = g
	f.Add(Encode(g))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again graph
		if Decode(b, &again) == nil {
			var third graph
			if err := Decode(Encode(&again), &third); err != nil {
				t.Fatal(err)
			}
		}
	})
}
