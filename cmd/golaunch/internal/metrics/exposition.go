package metrics

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// sheet holds the series of one scrape by family.
type sheet map[*family][]series

// series is one value, with the labels in the text format, ordered by their names.
type series struct {
	labels string
	value  float64
}

// set adds a value to the sheet if the value is known.
func (s sheet) set(f *family, value float64, labels ...string) {
	if math.IsNaN(value) {
		return
	}
	names := f.labels()
	pairs := make([]string, len(names))
	for i, name := range names {
		pairs[i] = name + `="` + strings.ReplaceAll(escaped(labels[i]), `"`, `\"`) + `"`
	}
	slices.Sort(pairs)
	s[f] = append(s[f], series{strings.Join(pairs, ","), value})
}

// escaped escapes a text for Prometheus' text format, version 0.0.4; quotes are escaped in labels
// only.
func escaped(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), "\n", `\n`)
}

// write writes the text format, families and series in order. A duplicate series is an error, since
// Prometheus would refuse the whole scrape.
func (s sheet) write(to io.Writer) error {
	families := make([]*family, 0, len(s))
	for f, all := range s {
		families = append(families, f)
		slices.SortFunc(all, func(a, b series) int { return strings.Compare(a.labels, b.labels) })
		for i := range len(all) - 1 {
			if all[i].labels == all[i+1].labels {
				return fmt.Errorf("%s{%s} is there twice", f.name(), all[i].labels)
			}
		}
	}
	slices.SortFunc(families, func(a, b *family) int { return cmp.Compare(a.name(), b.name()) })
	w := bufio.NewWriter(to)
	for _, f := range families {
		name := f.name()
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, escaped(f.help), name, f.kind)
		for _, one := range s[f] {
			_, _ = w.WriteString(name) // Flush has the error
			if one.labels != "" {
				fmt.Fprintf(w, "{%s}", one.labels)
			}
			fmt.Fprintf(w, " %s\n", strconv.FormatFloat(one.value, 'g', -1, 64))
		}
	}
	return w.Flush()
}

// maxScrapes bounds the concurrent scrapes. Further scrapes must try again later.
const maxScrapes = 4

// Handler serves the metrics.
func (c *Collector) Handler() http.Handler {
	underWay := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case underWay <- struct{}{}:
			defer func() { <-underWay }()
		default:
			http.Error(w, fmt.Sprintf("%d scrapes are under way: try again later", maxScrapes), http.StatusServiceUnavailable)
			return
		}
		var text strings.Builder
		if err := c.Write(&text); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8; escaping=underscores")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			_, _ = io.WriteString(w, text.String()) // a client that is gone needs no answer
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		_, _ = io.WriteString(packed, text.String())
		_ = packed.Close()
	})
}
