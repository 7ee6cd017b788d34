package metrics

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// board has the parts of a dashboard's JSON that this test checks.
type board struct {
	UID           string
	Title         string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type string
			Datasource *datasource
		}
	}
	Panels []boardPanel
}

type boardPanel struct {
	ID          int
	Type, Title string
	Datasource  *datasource
	GridPos     struct{ H, W, X, Y int }
	FieldConfig *struct{ Defaults map[string]any }
	Targets     []struct {
		RefID      string
		Expr       string
		Datasource *datasource
	}
}

type datasource struct{ Type, UID string }

type boardQuery struct{ panel, expr string }

func (b board) queries() (all []boardQuery) {
	for _, p := range b.Panels {
		for _, t := range p.Targets {
			all = append(all, boardQuery{p.Title, t.Expr})
		}
	}
	return all
}

func readBoard(t *testing.T) (b board) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(grafana, "golaunch.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBoard checks Grafana's requirements for a board, and that the board names no unknown data
// source or metric.
func TestBoard(t *testing.T) {
	b := readBoard(t)
	if b.UID == "" || b.Title == "" || b.SchemaVersion < 36 {
		t.Errorf("uid %q, title %q, schema %d", b.UID, b.Title, b.SchemaVersion)
	}
	variables := map[string]string{}
	for _, v := range b.Templating.List {
		variables[v.Name] = v.Type
	}
	if want := map[string]string{"datasource": "datasource", "job": "query"}; !maps.Equal(variables, want) {
		t.Errorf("the variables are %v, not %v", variables, want)
	}
	ids, taken, known := map[int]bool{}, map[[2]int]string{}, map[string]bool{}
	for _, f := range declared(t) {
		known[f.name()] = true
	}
	for _, p := range b.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("panel %q has the id %d again", p.Title, p.ID)
		}
		ids[p.ID] = true
		p.checkPlace(t, taken)
		p.checkQueries(t, known)
	}
	if len(b.queries()) < 30 {
		t.Errorf("it has %d queries", len(b.queries()))
	}
}

var kinds = []string{"row", "stat", "timeseries", "bargauge", "table", "state-timeline"}

func (p boardPanel) checkPlace(t *testing.T, taken map[[2]int]string) {
	t.Helper()
	g := p.GridPos
	if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 || !slices.Contains(kinds, p.Type) || p.Title == "" {
		t.Errorf("panel %d: %+v", p.ID, p)
	}
	for x := g.X; x < g.X+g.W; x++ {
		for y := g.Y; y < g.Y+g.H; y++ {
			if other := taken[[2]int{x, y}]; other != "" {
				t.Fatalf("panel %q lies over %q", p.Title, other)
			}
			taken[[2]int{x, y}] = p.Title
		}
	}
}

func (p boardPanel) checkQueries(t *testing.T, known map[string]bool) {
	t.Helper()
	if p.Type == "row" {
		return
	}
	variable := datasource{"prometheus", "${datasource}"}
	if p.Datasource == nil || *p.Datasource != variable || p.FieldConfig == nil || len(p.Targets) == 0 {
		t.Errorf("panel %q: %+v", p.Title, p)
	}
	refs := map[string]bool{}
	for _, target := range p.Targets {
		if refs[target.RefID] || target.RefID == "" || target.Datasource == nil || *target.Datasource != variable {
			t.Errorf("panel %q: %+v", p.Title, target)
		}
		refs[target.RefID] = true
		names := regexp.MustCompile(`golaunch_\w+`).FindAllString(target.Expr, -1)
		if len(names) == 0 {
			t.Errorf("panel %q asks for nothing: %s", p.Title, target.Expr)
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("panel %q asks for %s, which there is not", p.Title, name)
			}
		}
	}
}
