package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// repository returns a repository with a version, after which a package has changed.
func repository(t *testing.T, before, after, log, version string) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		if err := run(t.Context(), dir, "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@localhost"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write("go.mod", "module example.com/m\n\ngo 1.26\n")
	write("m.go", "package m\n\n"+before)
	git("add", ".")
	git("commit", "-q", "-m", "a")
	git("tag", "-a", "v1.2.0", "-m", "v1.2.0")
	write("m.go", "package m\n\n"+after)
	write("CHANGELOG.md", log)
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(versionFile)), 0o700); err != nil {
		t.Fatal(err)
	}
	write(versionFile, version+"\n")
	git("add", ".")
	git("commit", "-q", "-m", "b")
	return dir
}

func TestRelease(t *testing.T) {
	log := func(version string) string {
		return "# Changelog\n\n## Unreleased\n\n## " + version + " - 2026-11-24\n\n- A\n\n## 1.2.0 - 2026-01-01\n"
	}
	for _, c := range []struct{ version, before, after, log, want string }{
		{"1.3.0", "func A() {}", "func A() {}\nfunc B() {}", log("1.3.0"), ""},
		{"1.2.1", "func A() {}", "func A() {}", log("1.2.1"), ""},
		{"1.3.0", "func A() {}", "", log("1.3.0"), "A: removed"},
		{"1.3.0", "func A() {}", "func A(int) {}", log("1.3.0"), "A: changed from func() to func(int)"},
		{"2.0.0", "func A() {}", "", log("2.0.0"), ""},
		{"1.4.0", "", "", log("1.4.0"), "no next one"},
		{"1.2.0", "", "", log("1.2.0"), "no next one"},
		{"1.3", "", "", "", "is no version"},
		{"v1.3.0", "", "", "", "is no version"},
		{"1.3.0", "", "", log("1.2.1"), `is "1.2.1 - 2026-11-24": it has to be 1.3.0`},
		{"1.3.0", "", "", "# Changelog\n", "no section Unreleased"},
		{"1.3.0", "", "", "# C\n\n## Unreleased\n\n- A\n\n## 1.3.0 - 2026-11-24\n\n- B\n", "has changes in Unreleased"},
		{"1.3.0", "", "", "# C\n\n## Unreleased\n\n## 1.3.0 - 2026-11-24\n\n## 1.2.0 - 2026-01-01\n\n- B\n", "to say what changed"},
	} {
		err := release(t.Context(), repository(t, c.before, c.after, c.log, c.version), c.version, true)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.version, err, c.want)
		}
	}
	if err := release(t.Context(), repository(t, "", "", log("1.3.0"), "1.2.0"), "1.3.0", true); err == nil || !strings.Contains(err.Error(), versionFile+" says 1.2.0: write 1.3.0 there") {
		t.Errorf("a version that was not written down: %v", err)
	}
	dir := repository(t, "", "", log("1.3.0"), "1.3.0")
	if err := run(t.Context(), dir, "git", "tag", "v1.2.0-rc.1", "v1.2.0^{commit}"); err != nil {
		t.Fatal(err)
	}
	if last, err := tagged(t.Context(), dir); last != "v1.2.0" {
		t.Errorf("the last version is %s (%v)", last, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := release(t.Context(), dir, "1.3.0", true); err == nil || !strings.Contains(err.Error(), "in no commit:\n?? x") {
		t.Errorf("with a change that is not committed: %v", err)
	}
}

// TestFollows: previews come before their version, and before 1.0.0 a minor version may remove
// things.
func TestFollows(t *testing.T) {
	for _, c := range []struct {
		last, next      string
		follows, breaks bool
	}{
		{"0.9.0", "0.10.0", true, true},
		{"0.9.0", "0.9.1", true, false},
		{"0.9.0", "1.0.0-rc.1", true, true},
		{"1.0.0-rc.1", "1.0.0", true, false},
		{"1.0.0-rc.9", "1.0.0-rc.10", true, false},
		{"1.0.0-rc.2", "1.0.0-rc.1", false, false},
		{"1.0.0", "1.0.0-rc.1", false, false},
		{"1.2.3", "1.3.1", false, false},
		{"1.2.3", "2.0.0", true, true},
		{"1.2.3", "1.2.2", false, false},
	} {
		last, err := parse(c.last)
		if err != nil {
			t.Fatal(err)
		}
		next, err := parse(c.next)
		if err != nil {
			t.Fatal(err)
		}
		if (next.follows(last) == nil) != c.follows || next.breaks(last) != c.breaks {
			t.Errorf("%s after %s: %v, %v", c.next, c.last, next.follows(last), next.breaks(last))
		}
	}
}
