package lazyregexp

import "testing"

func TestGet(t *testing.T) {
	r := New(`^a(b+)$`)
	if m := r.Get().FindStringSubmatch("abb"); len(m) != 2 || m[1] != "bb" {
		t.Errorf("matched %q", m)
	}
	if r.Get() != r.Get() {
		t.Error("it is compiled at each use")
	}
	defer func() {
		if recover() == nil {
			t.Error("a wrong pattern does not panic")
		}
	}()
	New("(").Get()
}
