// Package deptest checks the import rules that CONTRIBUTING.md lists: which room of the repository
// may import which, what a pure package may not touch, and that every package says what it is for.
package deptest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/golaunch/golaunch/"

// floors are the rooms of the repository from the top down. A package may import packages of its
// own room and of the floors below it, but not of another room on its floor.
var floors = [][]string{
	{"cmd/golaunch", "examples", "internal/testkit", "internal/deptest"},
	{"launcher"},
	{"agent", "rendezvous"},
	{"internal/wire", "internal/process"},
	{"internal/host", "internal/core"},
	{"nccl"},
	{"rankenv"},
	{"launcher/report", "placement", "rendezvous/tcpstore", "internal/wire/rpcframe", "internal/host/dylib", "internal/host/lazyregexp"},
}

// room is the room that a package is in, and its floor.
func room(t *testing.T, pkg string) (name string, floor int) {
	t.Helper()
	for i, rooms := range floors {
		for _, r := range rooms {
			if (pkg == r || strings.HasPrefix(pkg, r+"/")) && len(r) > len(name) {
				name, floor = r, i
			}
		}
	}
	if name == "" {
		t.Errorf("package %s is in no room: see the layout in CONTRIBUTING.md", pkg)
	}
	return name, floor
}

func TestImportsPointDown(t *testing.T) {
	for _, pkg := range packages(t) {
		from, floor := room(t, pkg)
		for _, imported := range imports(t, pkg) {
			name, ours := strings.CutPrefix(imported, module)
			if !ours {
				continue
			}
			to, below := room(t, name)
			switch {
			case to == "internal/testkit" && from != "internal/testkit":
				t.Errorf("%s imports %s: only tests import the test kit", pkg, name)
			case to != from && below <= floor:
				t.Errorf("%s imports %s, which is not below it", pkg, name)
			}
		}
	}
}

// values are the imports that would let a package that decides reach the world, and why it must not.
var values = map[string]string{
	"os":           "it decides on what it is told",
	"io/fs":        "it reads no file",
	"net":          "it reads no network",
	"context":      "it starts nothing that could be cancelled",
	"math/rand/v2": "the same input gives the same output",
	"log/slog":     "its words are its reasons",
	"sync":         "one goroutine owns it",
}

// pure are the packages that decide, and every package below internal/core.
var pure = []string{
	"placement", "internal/host/bind", "internal/process/fold",
	"cmd/golaunch/internal/straggler", "cmd/golaunch/internal/fabric/pairtests",
}

// exempt are imports of pure packages that reach nothing, with the reason.
var exempt = map[string]string{
	"internal/core/snapshot sync": "it remembers how types are written",
	"internal/core/verdict sync":  "its tables are built on first use",
}

// forbidden are imports that would make others pay, or do what another package does for all.
var forbidden = map[string]map[string]string{
	"cmd/golaunch":          {"encoding/json": "internal/wire/jsonout writes its JSON"},
	"placement":             {"time": "it reads no clock"},
	"internal/core/cluster": {"time": "time enters as events of jobs"},
	"rankenv":               {"net/http": "a trainer imports it", "google.golang.org/grpc": "a trainer imports it"},
}

func TestPurePackagesReachNothing(t *testing.T) {
	for _, pkg := range packages(t) {
		decides := slices.Contains(pure, pkg) || strings.HasPrefix(pkg, "internal/core/")
		for _, imported := range imports(t, pkg) {
			why := forbidden[pkg][imported]
			if decides && why == "" && exempt[pkg+" "+imported] == "" {
				why = values[imported]
			}
			if why != "" {
				t.Errorf("%s imports %s, but %s", pkg, imported, why)
			}
		}
	}
}

// TestNoClockInTheCore checks that time enters the core as an event: the core may name durations,
// but not ask for the time, and it starts no goroutine.
func TestNoClockInTheCore(t *testing.T) {
	for _, pkg := range packages(t) {
		if !strings.HasPrefix(pkg, "internal/core/") {
			continue
		}
		for _, f := range parse(t, pkg, 0) {
			ast.Inspect(f, func(n ast.Node) bool {
				if _, starts := n.(*ast.GoStmt); starts {
					t.Errorf("%s starts a goroutine", pkg)
				}
				call, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				clock := []string{"Now", "Since", "Until", "After", "NewTimer", "Sleep"}
				if x, ok := call.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, call.Sel.Name) {
					t.Errorf("%s calls time.%s: time enters as an event", pkg, call.Sel.Name)
				}
				return true
			})
		}
	}
}

func TestEveryPackageHasADoc(t *testing.T) {
	for _, dir := range packages(t) {
		documented := dir == "internal/deptest"
		for _, f := range parse(t, dir, parser.ParseComments) {
			documented = documented || f.Doc != nil
		}
		if !documented {
			t.Errorf("package %s does not say what it is for", dir)
		}
	}
}

const root = "../.."

// packages are the folders of this module with Go files that are not only tests.
func packages(t *testing.T) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "tools") {
			return fs.SkipDir
		}
		if dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(p), root+"/")); isSource(p) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func isSource(p string) bool { return strings.HasSuffix(p, ".go") && !strings.HasSuffix(p, "_test.go") }

func parse(t *testing.T, pkg string, mode parser.Mode) []*ast.File {
	t.Helper()
	dir := path.Join(root, pkg)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, e := range entries {
		if !isSource(e.Name()) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path.Join(dir, e.Name()), nil, mode)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		t.Fatalf("package %s has no files", pkg)
	}
	return files
}

func imports(t *testing.T, pkg string) []string {
	t.Helper()
	var all []string
	for _, f := range parse(t, pkg, parser.ImportsOnly) {
		for _, spec := range f.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, name)
		}
	}
	return all
}
