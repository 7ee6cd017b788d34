package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/alert"
)

// query names the open page.
type query struct {
	// page is "cluster", "job" or "node", and name the name of the job or node.
	page, name string
	// heat is the meter that the heat map of a job shows.
	heat string
}

func parseQuery(v url.Values) (query, error) {
	q := query{page: v.Get("page"), name: v.Get("name"), heat: v.Get("heat")}
	if _, known := meters[q.heat]; !known {
		q.heat = "step_time"
	}
	switch {
	case !slices.Contains([]string{"cluster", "job", "node"}, q.page):
		return q, fmt.Errorf("no page %q; there are cluster, job and node", q.page)
	case q.page != "cluster" && q.name == "":
		return q, fmt.Errorf("which %s? its name is missing", q.page)
	}
	if q.page != "job" {
		q.heat = ""
	}
	return q, nil
}

// parts are the contents of a page, each as JSON without line breaks or characters of HTML. A
// browser gets only the parts that have changed.
type parts map[string]json.RawMessage

func newParts(q query, s *alert.Picture) parts {
	p := parts{}
	switch q.page {
	case "cluster":
		p.cluster(s)
	case "job":
		p.job(s, q.name)
	case "node":
		p.node(s, q.name)
	}
	return p
}

// add adds a part. A part with a number that JSON cannot hold, from a broken coordinator, is
// omitted.
func (p parts) add(name string, v any) {
	if body, err := json.Marshal(v); err == nil {
		p[name] = body
	}
}

// since returns the parts that differ from before, as an object; parts that are gone are null.
func (p parts) since(before parts) []byte {
	b := []byte{'{'}
	put := func(name string, body []byte) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, name), ':')
		b = append(b, body...)
	}
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if !bytes.Equal(p[name], before[name]) {
			put(name, p[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if p[name] == nil {
			put(name, []byte("null"))
		}
	}
	return append(b, '}')
}

// real is a number, or null if unknown.
type real float64

func (r real) MarshalJSON() ([]byte, error) { return appendNumber(nil, float64(r), 6), nil }

// moment is a time as milliseconds since 1970, or null.
type moment time.Time

func when(t time.Time) moment { return moment(t) }

func (m moment) MarshalJSON() ([]byte, error) {
	if time.Time(m).IsZero() {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, time.Time(m).UnixMilli(), 10), nil
}

// whole rounds numbers to integers. Other precisions are numbers of digits.
const whole = 0

func appendNumber(b []byte, v float64, digits int) []byte {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return append(b, "null"...)
	case digits == whole && math.Abs(v) < 1e15:
		return strconv.AppendInt(b, int64(math.Round(v)), 10)
	}
	return strconv.AppendFloat(b, v, 'g', max(1, digits), 64)
}

// numbers adds a column.
func (p parts) numbers(name string, digits int, values iter.Seq[float64]) {
	b := []byte{'['}
	for v := range values {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = appendNumber(b, v, digits)
	}
	p[name] = append(b, ']')
}

// words is a column of texts, in which each text is stored once.
type words struct {
	Words []string `json:"w"`
	At    []int    `json:"i"`
}

// texts adds a column.
func (p parts) texts(name string, values iter.Seq[string]) {
	w := words{Words: []string{}, At: []int{}}
	at := map[string]int{}
	for v := range values {
		i, known := at[v]
		if !known {
			i = len(w.Words)
			at[v], w.Words = i, append(w.Words, text(v, maxName))
		}
		w.At = append(w.At, i)
	}
	p.add(name, w)
}
