package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"google.golang.org/grpc"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
)

// LogReader reads the output of a job's ranks, over connections that may break.
type LogReader struct {
	client *Client
	job    string
	filter report.LogFilter
	known  map[report.LogPosition]known
	// lacking has the nodes for which a missing piece was reported.
	lacking map[string]bool
	cancel  context.CancelFunc
	stream  grpc.BidiStreamingClient[pb.Inquiry, pb.Answer]
}

// known says how much of a file was read, and which node has the file. The node is empty if several
// nodes have the file, or if the file was read before.
type known struct {
	offset int64
	node   string
}

// Logs reads the output of a job's ranks on all nodes. The output of each rank comes in order, the
// output of different nodes as it arrives.
func (c *Client) Logs(ctx context.Context, id string, f report.LogFilter) (*LogReader, error) {
	if len(f.Ranks) > wire.MaxSpans {
		return nil, &RequestError{Target: c.Target, Why: fmt.Sprintf("%d ranges of ranks are chosen, %d at most", len(f.Ranks), wire.MaxSpans), Bad: true}
	}
	r := &LogReader{client: c, job: id, filter: f, known: map[report.LogPosition]known{}, lacking: map[string]bool{}}
	for _, at := range f.From {
		r.known[at.File()] = known{offset: at.Offset}
	}
	return r, r.open(ctx)
}

// open opens a stream, and waits a while for the coordinator.
func (r *LogReader) open(ctx context.Context) (err error) {
	about := wire.Inquiry{Job: r.job, Question: wire.Question{About: wire.AboutLogs, Logs: r.filter}}
	r.stream, r.cancel, err = r.client.inquire(ctx, about, r.from())
	return err
}

// from returns the known positions by node, the newest attempts first, for as many files as fit
// into a request. Nodes send other files whole, and the reader drops what it has already read.
func (r *LogReader) from() map[string][]report.LogPosition {
	from, size := map[string][]report.LogPosition{}, wire.MaxPiece
	byAge := func(a, b report.LogPosition) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Stream, b.Stream))
	}
	for _, at := range slices.SortedFunc(maps.Keys(r.known), byAge) {
		k := r.known[at]
		if from[k.node] == nil {
			size += len(k.node) + wire.MaxPosition
		}
		if size += wire.MaxPosition; size > wire.MaxRequest {
			break
		}
		at.Offset = k.offset
		from[k.node] = append(from[k.node], at)
	}
	return from
}

// maxMended bounds the attempts to reconnect without having read anything.
const maxMended = 8

// Next waits for the next piece. It returns io.EOF when everything was read or, with Follow, when
// the job is over.
func (r *LogReader) Next(ctx context.Context) (report.LogChunk, error) {
	for mended := 0; ; mended++ {
		m, err := r.stream.Recv()
		switch {
		case err == nil:
			var chunk report.LogChunk
			if c := wire.ToAnswer(m).Chunk; c != nil {
				chunk = *c
			}
			chunk.Node, chunk.Missing = m.GetNode(), m.GetMissing()
			if r.fresh(&chunk) {
				return chunk, nil
			}
			mended = 0
			continue
		case errors.Is(err, io.EOF):
			return report.LogChunk{}, io.EOF
		case ctx.Err() != nil:
			return report.LogChunk{}, context.Cause(ctx)
		case !r.client.mendable(err) || mended == maxMended:
			return report.LogChunk{}, r.client.explain(err)
		}
		r.cancel()
		if err := r.open(ctx); err != nil {
			return report.LogChunk{}, err
		}
	}
}

// fresh removes the part that was already read, because nodes that share a file system may both
// send a file. It returns false if nothing is new.
func (r *LogReader) fresh(chunk *report.LogChunk) bool {
	if chunk.Missing != "" {
		told := r.lacking[chunk.Node]
		r.lacking[chunk.Node] = true
		return !told
	}
	file := chunk.File()
	end := chunk.Offset + int64(len(chunk.Data))
	before, again := r.known[file]
	now := known{max(before.offset, end), chunk.Node}
	if again && before.node != chunk.Node {
		now.node = ""
	}
	r.known[file] = now
	if end <= before.offset {
		return false
	}
	if chunk.Offset < before.offset {
		chunk.Data, chunk.Offset = chunk.Data[before.offset-chunk.Offset:], before.offset
	}
	return true
}

// Close ends the reader.
func (r *LogReader) Close() { r.cancel() }
