package ignore

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// asGit asks git which of some paths the rules ignore. A path with a slash at its end is a
// directory.
func asGit(t rapid.TB, dir string, rules string, paths []string) map[string]bool {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	var input bytes.Buffer
	for _, path := range paths { // git looks whether it is a directory
		if !strings.HasSuffix(path, "/") {
			continue
		}
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(filepath.Join(dir, strings.Split(path, "/")[0]))
	}
	cmd := exec.Command("git", "check-ignore", "--no-index", "-z", "--stdin", "--verbose", "--non-matching")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	for _, path := range paths {
		input.WriteString(strings.TrimSuffix(path, "/") + "\x00")
	}
	cmd.Stdin = &input
	var out, words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &words
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		t.Fatalf("git check-ignore: %v: %s", err, words.String())
	}
	ignored := map[string]bool{}
	fields := strings.Split(out.String(), "\x00")
	for ; len(fields) >= 4; fields = fields[4:] {
		ignored[fields[3]] = fields[2] != "" && !strings.HasPrefix(fields[2], "!")
	}
	return ignored
}

// ours reports whether the rules ignore a path or one of its directories.
func ours(rules string, path string) bool {
	var r Rules
	r.Add([]byte(rules))
	elements := strings.Split(strings.TrimSuffix(path, "/"), "/")
	for i := range elements {
		dir := i < len(elements)-1 || strings.HasSuffix(path, "/")
		if ignored, _ := r.Match(strings.Join(elements[:i+1], "/"), dir); ignored {
			return true
		}
	}
	return false
}

func repository(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	return dir
}

func TestMatch(t *testing.T) {
	dir := repository(t)
	paths := []string{
		"a", "b", "a/b", "a/b/c", "a.pyc", "x/a.pyc", "build/", "x/build/", "x/build/y", "doc/a.txt", "doc/x/a.txt", "a b", "a ", "#a", "!a",
		"foo/bar", "x/foo/bar", "foo/x/bar", "foox/y/bar", "é", "data/keep", "data/x", "[a]", `a\b`, "aXb", "-", "]", "a/.gitkeep", "deep/a/b/c/d",
	}
	for _, rules := range []string{
		"", "a", "/a", "a/", "/a/", "*.pyc", "build/", "/build", "doc/*.txt", "doc/**/*.txt", "**/foo", "**/foo/bar", "foo/**", "foo/**/bar", "foo**/bar",
		"*", "*\n!a", "*\n!*/\n!b", "data/*\n!data/keep", "data\n!data/keep", "a\\ ", "a ", "a  ", "\\#a", "#a", "\\!a", "!a", "?", "[a-c]", "[!a-c]", "[^a]",
		"[[:alpha:]]", "[[:digit:]X-]", "[]-]", "[a", "a[", "\\", "a\\", "\\a", "a\\\\b", "a\r\nb\r\n", "a\r", "/*", "/**", "**", "***", "a/***/c", "**/", "/",
		"//", "a//b", "!", "[[:foo:]]", "[[:]", "[a-]", "[--a]", "[z-a]", "\xef\xbb\xbfa", "a*b", "a/*/c", "deep/**/d", "deep/**d", "**a", "a**", "a/b**",
		" a", "a\t", "\t", " ", "doc/[^/]*", "*/b", "?/b", "a[/]b", "é", "??",
	} {
		theirs := asGit(t, dir, rules, paths)
		for _, path := range paths {
			if got := ours(rules, path); got != theirs[strings.TrimSuffix(path, "/")] {
				t.Errorf("rules %q ignore %q: %v, and git says %v", rules, path, got, theirs[strings.TrimSuffix(path, "/")])
			}
		}
	}
}

// TestMatchesAsGit compares random rules with git.
func TestMatchesAsGit(t *testing.T) {
	dir := repository(t)
	pattern := rapid.StringOfN(rapid.SampledFrom([]rune(`aabb//**?[]!^-\ #.`)), 1, 10, -1)
	name := rapid.StringOfN(rapid.SampledFrom([]rune("aabb.")), 1, 3, -1).Filter(func(s string) bool { return strings.Trim(s, ".") != "" })
	rapid.Check(t, func(t *rapid.T) {
		rules := strings.Join(rapid.SliceOfN(pattern, 1, 4).Draw(t, "rules"), "\n") + "\n"
		paths := make([]string, 12)
		for i := range paths {
			elements := rapid.SliceOfN(name, 1, 4).Draw(t, "path")
			for i, e := range elements[:len(elements)-1] { // an element that ends with a dot is a directory, and no other element is
				elements[i] = strings.TrimSuffix(e, ".") + "."
			}
			if paths[i] = strings.Join(elements, "/"); strings.HasSuffix(paths[i], ".") {
				paths[i] += "/"
			}
		}
		theirs := asGit(t, dir, rules, paths)
		for _, path := range paths {
			if got := ours(rules, path); got != theirs[strings.TrimSuffix(path, "/")] {
				t.Fatalf("rules %q ignore %q: %v, and git says %v", rules, path, got, theirs[strings.TrimSuffix(path, "/")])
			}
		}
	})
}
