package rendezvous

import (
	"encoding/json"
	"testing"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous/internal/entry"
)

// BenchmarkEntry measures the cost to write and to read an entry of the log, in the log's own
// format and as a line of JSON for people.
func BenchmarkEntry(b *testing.B) {
	ev := job.Exited{Node: "n1", Rank: 3, Exit: report.Exit{Code: 1}, At: now(), Tail: string(make([]byte, 200))}
	e := replica.Entry{At: now(), Event: cluster.Happened{Job: "j", Event: ev}}
	b.Run("protobuf/write", func(b *testing.B) {
		for b.Loop() {
			entry.Write(e)
		}
	})
	b.Run("json/write", func(b *testing.B) {
		for b.Loop() {
			if _, err := jsonout.Line(&jsonout.Event{Time: e.At, Event: "exited", Reason: "because", Detail: ev}); err != nil {
				b.Fatal(err)
			}
		}
	})
	text := entry.Write(e)
	b.Run("protobuf/read", func(b *testing.B) {
		for b.Loop() {
			if _, err := entry.Read(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	lines, err := jsonout.Marshal(ev)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("json/read", func(b *testing.B) {
		for b.Loop() {
			var ev job.Exited
			if err := json.Unmarshal(lines, &ev); err != nil {
				b.Fatal(err)
			}
		}
	})
}
