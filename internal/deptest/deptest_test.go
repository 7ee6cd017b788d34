// Package deptest holds the house in order: which package may import which, what a pure package may not touch, and that every
// package says what it is for.
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

// house lists the packages from the top floor down: a package may import only what stands below it.
var house = []struct {
	pkg string
	// except are imports of a package above or beside, with the reason.
	except map[string]string
}{
	{"cmd/golaunch", nil},
	{"cmd/golaunch/internal/top", nil},
	{"cmd/golaunch/internal/web", nil},
	{"cmd/golaunch/internal/metrics", nil},
	{"cmd/golaunch/internal/concern", nil},
	{"cmd/golaunch/internal/view", nil},
	{"cmd/golaunch/internal/view/viewtest", nil},
	{"cmd/golaunch/internal/units", nil},
	{"cmd/golaunch/internal/controller", nil},
	{"internal/clustertest", nil},
	{"launcher", nil},
	{"agent", nil},
	{"rendezvous", nil},
	{"internal/fabric", nil},
	{"internal/endpoint", nil},
	{"internal/keep", nil},
	{"rendezvous/tcpstore", nil},
	{"rendezvous/internal/log", nil},
	{"internal/session", nil},
	{"internal/wire", nil},
	{"internal/wire/wiretest", nil},
	{"rendezvous/rendezvouspb", nil},
	{"internal/replica", nil},
	{"internal/quorum", nil},
	{"internal/mtls", nil},
	{"internal/submitter", nil},
	{"internal/munge", nil},
	{"internal/bundle", nil},
	{"internal/logs", nil},
	{"internal/fold", nil},
	{"internal/forkserver", nil},
	{"internal/proc", nil},
	{"internal/health", nil},
	{"internal/gpu", nil},
	{"internal/stacks", nil},
	{"internal/samples", nil},
	{"internal/bind", nil},
	{"internal/topo/topotest", nil},
	{"internal/topo", nil},
	{"internal/slurmtest", nil},
	{"internal/sshtest", nil},
	{"internal/mutants", nil},
	{"internal/suite", nil},
	{"internal/nettest", nil},
	{"internal/nccltest", nil},
	{"internal/announce", nil},
	{"internal/speaker", nil},
	{"internal/trainjob", nil},
	{"internal/postmortem", nil},
	{"internal/where", nil},
	{"internal/hostlist", nil},
	{"internal/hidden", nil},
	{"internal/version", nil},
	{"internal/interrupt", nil},
	{"internal/contract", nil},
	{"internal/helper", nil},
	{"internal/account", nil},
	{"internal/own", nil},
	{"internal/filetimer", nil},
	{"internal/ports", nil},
	{"internal/spot", nil},
	{"internal/cluster", nil},
	{"internal/job", nil},
	{"internal/snapshot", nil},
	{"internal/verdict", nil},
	{"internal/goodput", nil},
	{"internal/straggler", nil},
	{"internal/rounds", nil},
	{"nccl/dl", nil},
	{"internal/dylib", nil},
	{"nccl", nil},
	{"rankenv", nil},
	{"internal/calls", nil},
	{"placement", nil},
}

// forbidden are imports that would let the world into a pure package, or do what another package does for all.
var forbidden = map[string]map[string]string{
	"cmd/golaunch": {"encoding/json": "internal/contract writes its JSON"},
	"placement": {
		"os": "it decides on values alone", "time": "it reads no clock", "net": "it reads no network",
		"math/rand/v2": "the same input gives the same plan", "sync": "it has no goroutine",
	},
	"internal/job": {
		"os": "it decides on events alone", "net": "it reads no network", "context": "it starts nothing that could be cancelled",
		"math/rand/v2": "the same events give the same actions", "sync": "one goroutine owns it", "log/slog": "its words are its reasons",
	},
	"internal/cluster": {
		"os": "it decides on events alone", "net": "it reads no network", "context": "it starts nothing that could be cancelled",
		"math/rand/v2": "the same events give the same steps", "sync": "one goroutine owns it", "log/slog": "its words are its reasons",
		"time": "time enters as events of jobs",
	},
	"internal/replica": {
		"os": "it is a function of its log", "net": "it reads no network", "context": "it starts nothing that could be cancelled",
		"math/rand/v2": "the same entries give the same state", "sync": "one goroutine owns it", "log/slog": "its words are its reasons",
	},
	"internal/verdict": {
		"os": "it decides on evidence alone", "net": "it reads no network", "context": "it starts nothing that could be cancelled",
		"math/rand/v2": "the same evidence gives the same verdict",
	},
	"internal/goodput": {
		"os": "it adds up what it is told", "net": "it reads no network", "context": "it starts nothing that could be cancelled",
		"math/rand/v2": "the same changes give the same ledger", "sync": "one goroutine owns it",
	},
	"internal/fold": {
		"os": "it folds what it is given", "net": "it reads no network", "context": "it starts nothing that could be cancelled",
		"math/rand/v2": "the same lines give the same groups", "sync": "one goroutine owns it",
	},
	"internal/straggler": {
		"os": "it decides on what it is told", "net": "it reads no network", "context": "it starts nothing that could be cancelled",
		"math/rand/v2": "the same samples give the same findings", "sync": "one goroutine owns it",
	},
	"internal/rounds": {
		"os": "it decides on results alone", "net": "it reads no network", "context": "it starts nothing that could be cancelled",
		"math/rand/v2": "the same results give the same tests", "sync": "it has no goroutine",
	},
	"internal/bind": {"os": "it decides on values alone", "io/fs": "it reads no machine", "sync": "it has no goroutine"},
	"rankenv":       {"net/http": "a trainer imports it", "google.golang.org/grpc": "a trainer imports it"},
}

func TestImportsPointDown(t *testing.T) {
	floor := map[string]int{}
	for i, p := range house {
		floor[p.pkg] = i
	}
	for i, p := range house {
		for _, imported := range imports(t, p.pkg) {
			name, ours := strings.CutPrefix(imported, module)
			if why := forbidden[p.pkg][imported]; why != "" {
				t.Errorf("%s imports %s, but %s", p.pkg, imported, why)
			}
			if !ours || p.except[name] != "" {
				continue
			}
			if at, known := floor[name]; !known {
				t.Errorf("%s imports %s, which has no place in the house: add it to the list", p.pkg, name)
			} else if at <= i {
				t.Errorf("%s imports %s, which stands above it", p.pkg, name)
			}
		}
	}
	for _, pair := range [][2]string{{"rendezvous", "agent"}, {"agent", "rendezvous"}, {"rendezvous", "internal/session"}} {
		if slices.Contains(imports(t, pair[0]), module+pair[1]) {
			t.Errorf("%s imports %s: a coordinator and its agents know each other by their messages alone", pair[0], pair[1])
		}
	}
}

// TestNoClockInTheCore keeps time out of the decision maker: it may name durations, but not ask what time it is.
func TestNoClockInTheCore(t *testing.T) {
	for _, f := range slices.Concat(
		parse(t, "internal/job", 0), parse(t, "internal/cluster", 0), parse(t, "internal/goodput", 0), parse(t, "internal/replica", 0),
	) {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if id, isName := n.(*ast.GoStmt); isName {
				t.Errorf("the core starts a goroutine (%v)", id.Go)
			}
			if !ok {
				return true
			}
			pkg, _ := call.X.(*ast.Ident)
			if pkg != nil && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "NewTimer", "Sleep"}, call.Sel.Name) {
				t.Errorf("the core calls time.%s: time enters as an event", call.Sel.Name)
			}
			return true
		})
	}
}

func TestEveryPackageHasAPlaceAndADoc(t *testing.T) {
	known := map[string]bool{"internal/deptest": true}
	for _, p := range house {
		known[p.pkg] = true
	}
	for _, dir := range packages(t) {
		if !known[dir] && !strings.HasPrefix(dir, "examples/") {
			t.Errorf("package %s has no place in the house: add it to the list", dir)
		}
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
