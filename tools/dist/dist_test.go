package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// made is a whole release, made once for all tests.
var made = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "dist-test-")
	if err != nil {
		return dir, err
	}
	return dir, dist(tests, "../..", dir)
})

func all(t *testing.T) string {
	t.Helper()
	dir, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// one returns the file of a release that matches a pattern.
func one(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(all(t), pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files are %s (%v)", len(files), pattern, err)
	}
	return files[0]
}

// TestSame: the files of a release depend on the commit alone.
func TestSame(t *testing.T) {
	again := t.TempDir()
	if err := dist(t.Context(), "../..", again); err != nil {
		t.Fatal(err)
	}
	sums := func(dir string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, checksums))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if a, b := sums(all(t)), sums(again); !bytes.Equal(a, b) {
		t.Errorf("made again it is not the same:\n%s\n%s", a, b)
	}
	files, err := os.ReadDir(again)
	if err != nil || len(files) != len(strings.Fields(string(sums(again))))/2+1 {
		t.Errorf("%d files, and not all have a checksum (%v)", len(files), err)
	}
	// The same directory may be used again, but no other directory that has files.
	if err := cleared(again); err != nil {
		t.Error(err)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cleared(other); err == nil || !strings.Contains(err.Error(), "files that were not made here") {
		t.Errorf("a directory with other files: %v", err)
	}
}

func TestPythons(t *testing.T) {
	for version, want := range map[string]string{
		"0.9.0": "0.9.0", "1.0.0-rc.1": "1.0.0rc1", "1.0.0-beta2": "1.0.0b2",
		"0.9.0+devel.79d7082ab9f0.dirty":    "0.9.0+devel.79d7082ab9f0.dirty",
		"1.0.0-rc.1+devel.79d7082ab9f0":     "1.0.0rc1+devel.79d7082ab9f0",
		"0.0.0-20261124093309-79d7082ab9f0": "",
		"1.0.0-rock":                        "", "1.0": "",
	} {
		got, err := pythons(version)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s is %q for Python (%v), want %q", version, got, err, want)
		}
	}
}
