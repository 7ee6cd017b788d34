// Package deptest checks the rules for packages that CONTRIBUTING.md lists.
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

// rules say which of golaunch's packages a room may import: only some, or all except some. A room
// is a folder with all packages below it. A package obeys the rules of each room that it is in.
var rules = []struct{ room, only, never string }{
	{room: "placement", only: "placement"},
	{room: "launcher/report", only: "launcher/report placement"},
	{room: "rendezvous/tcpstore", only: "rendezvous/tcpstore"},
	{room: "rankenv", only: "rankenv placement internal/wire/rpcframe internal/host/lazyregexp"},
	{room: "nccl", only: "nccl rankenv placement internal/host/dylib internal/host/lazyregexp"},
	{room: "internal/core", only: "internal/core launcher/report nccl placement"},
	{room: "internal/host", never: "internal/core internal/process internal/wire"},
	{room: "internal/process", never: "internal/wire"},
	{room: "internal/wire", never: "internal/process"},
	{room: "internal", never: "agent rendezvous launcher"},
	{room: "agent", never: "rendezvous launcher"},
	{room: "rendezvous", never: "agent launcher"},
}

// leaves may be imported even where never forbids the room that they are in.
const leaves = "launcher/report rendezvous/tcpstore"

const testkit = "internal/testkit"

// in reports whether a package is in one of some rooms.
func in(pkg, rooms string) bool {
	return slices.ContainsFunc(strings.Fields(rooms), func(room string) bool {
		return pkg == room || strings.HasPrefix(pkg, room+"/")
	})
}

func TestImportRules(t *testing.T) {
	for _, pkg := range packages(t) {
		if in(pkg, testkit) { // testkit tests all rooms
			continue
		}
		for _, imported := range imports(t, pkg) {
			name, ours := strings.CutPrefix(imported, module)
			if !ours {
				continue
			}
			if in(name, testkit) {
				t.Errorf("%s imports %s: only tests import the test kit", pkg, name)
			}
			for _, r := range rules {
				if !in(pkg, r.room) {
					continue
				}
				if r.only != "" && !in(name, r.only) {
					t.Errorf("%s imports %s: %s imports only %s", pkg, name, r.room, r.only)
				}
				if in(name, r.never) && !in(name, leaves) {
					t.Errorf("%s imports %s: %s imports no package of %s", pkg, name, r.room, r.never)
				}
			}
		}
	}
}

// outside are imports through which a pure package would reach the outside, with the reasons
// against them.
var outside = map[string]string{
	"os":           "it decides on what it is told",
	"io/fs":        "it reads no file",
	"net":          "it reads no network",
	"context":      "it starts nothing that could be cancelled",
	"math/rand/v2": "the same input gives the same output",
	"log/slog":     "its words are its reasons",
	"sync":         "one goroutine owns it",
}

// pure are the rooms that only decide.
const pure = "internal/core placement internal/host/bind internal/process/fold " +
	"cmd/golaunch/internal/straggler cmd/golaunch/internal/fabric/pairtests"

// exempt are imports of pure packages that reach nothing, with the reason.
var exempt = map[string]string{
	"internal/core/snapshot sync": "it remembers how types are written",
	"internal/core/verdict sync":  "its tables are built on first use",
}

// forbidden are further imports that a package must not have, and why.
var forbidden = map[string]map[string]string{
	"cmd/golaunch":                {"encoding/json": "internal/wire/jsonout writes its JSON"},
	"cmd/golaunch/internal/watch": {"encoding/json": "internal/wire/jsonout writes its JSON"},
	"placement":                   {"time": "it reads no clock"},
	"rankenv":                     {"net/http": "a trainer imports it", "google.golang.org/grpc": "a trainer imports it"},
}

func TestPurePackagesReachNothing(t *testing.T) {
	for _, pkg := range packages(t) {
		for _, imported := range imports(t, pkg) {
			why := forbidden[pkg][imported]
			if in(pkg, pure) && why == "" && exempt[pkg+" "+imported] == "" {
				why = outside[imported]
			}
			if why != "" {
				t.Errorf("%s imports %s, but %s", pkg, imported, why)
			}
		}
	}
}

// TestNoClockInTheCore checks that the core does not ask for the time, which enters as an event,
// and starts no goroutine.
func TestNoClockInTheCore(t *testing.T) {
	for _, pkg := range packages(t) {
		if !in(pkg, "internal/core") {
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
