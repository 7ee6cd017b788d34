package mutants

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMutantIsPinnedToItsFunction(t *testing.T) {
	dir := t.TempDir()
	source := "package p\n\nfunc f(n int) {\n\tif n > 0 {\n\t\tn++\n\t\tg()\n\t}\n}\n\nfunc (t T) f() {\n\tn++\n\tg()\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ at, lines, err string }{
		{"f, world 3", "-\tn++\n-\tg()\n+\tg()", ""}, // with another indentation than in the source
		{"T.f", "-n++\n+", ""},
		{"f", "-n--\n+", "0 times"},
		{"f", "-n\n+", "5 times"},
		{"h", "-n++\n+", "0 declarations"},
	} {
		m, err := parseMutant("Wrong.\n" + c.at + "\n" + c.lines)
		if err != nil {
			t.Fatal(err)
		}
		m.dir = dir
		g := &field{packages: map[string]*sources{}}
		_, err = g.plant(m, 1)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.at, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.at, err)
			continue
		}
		text := g.overlay()[filepath.Join(dir, "p.go")]
		if !strings.Contains(text, "f_mutant1(") || strings.Count(text, "n++") != 2 {
			t.Errorf("%s: planted in\n%s", c.at, text)
		}
	}
}
