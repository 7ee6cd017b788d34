package wire

import (
	"iter"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
)

// About is the subject of a question to nodes.
type About int

const (
	// AboutNothing stands for a question that this version does not know.
	AboutNothing About = iota
	// AboutLogs asks for the output of a job's ranks.
	AboutLogs
	// AboutRAS asks the node with node rank 0 for a [RAS], in JSON.
	AboutRAS
	// AboutSamples asks for samples of ranks and nodes.
	AboutSamples
	// AboutStacks asks where a job's ranks are in their programs. Each answer is a stacks.Sample of
	// one process, in JSON.
	AboutStacks
	// AboutPing gets an empty answer at once.
	AboutPing
	// AboutEndpoint asks where a controller reaches the workers of a job. The answer is an address
	// with a port, as text.
	AboutEndpoint
	// AboutGPUs asks which processes use the memory of a node's GPUs. The answer is a list of
	// [GPU], in JSON.
	AboutGPUs
)

// Question is a question to the nodes of a job or of a cluster.
type Question struct {
	About   About
	Logs    report.LogFilter
	Samples SampleFilter
}

// SampleFilter chooses some of a node's samples.
type SampleFilter struct {
	// Since omits older samples, except the newest of each series.
	Since time.Duration
	// Every is the interval at which newer samples follow, until the question ends; 0 means one
	// answer.
	Every time.Duration
}

// Follows reports whether answers keep coming.
func (q Question) Follows() bool {
	return q.About == AboutLogs && q.Logs.Follow || q.About == AboutSamples && q.Samples.Every > 0
}

// Inquiry is a client's question to the nodes of a job, or to all nodes if Job is empty.
type Inquiry struct {
	Job string
	Question
	// Nodes are the nodes to ask; empty means all.
	Nodes []string
	// Within bounds the wait for nodes, unless their answers keep coming; 0 is no bound.
	Within time.Duration
}

// Ask is a question to an agent. The session sends the answers to the connection Via under ID.
type Ask struct {
	Question
	ID  string
	Via pb.RendezvousClient
}

// Answer is a part of a node's answer.
type Answer struct {
	Node string
	// Missing says what cannot be answered. The other fields are then unset.
	Missing string
	Chunk   *report.LogChunk
	Samples *Samples
	// Facts are JSON, of at most MaxPiece.
	Facts []byte
}

// Samples are a part of a node's samples. Now is a time of the node's clock.
type Samples struct {
	Now    time.Time
	Series []report.Series
}

// GPU is a GPU of a node, with its memory in bytes and the processes that use it.
type GPU struct {
	UUID        string
	Used, Total int64
	// Holders are the processes with a compute context on the GPU that the driver names.
	Holders []GPUHolder
}

// GPUHolder is a process that uses a GPU's memory. Job is empty if the process belongs to no rank
// that golaunch runs there.
type GPUHolder struct {
	PID int
	// Bytes is -1 if the driver does not say.
	Bytes int64
	Job   string
	Rank  int
}

func fromQuestion(q Question) *pb.Question {
	switch q.About {
	case AboutLogs:
		return &pb.Question{About: &pb.Question_Logs{Logs: fromFilter(q.Logs)}}
	case AboutRAS:
		return &pb.Question{About: &pb.Question_Ras{Ras: &pb.Ras{}}}
	case AboutSamples:
		f := &pb.SampleFilter{Since: durationpb.New(q.Samples.Since), Every: durationpb.New(q.Samples.Every)}
		return &pb.Question{About: &pb.Question_Samples{Samples: f}}
	case AboutStacks:
		return &pb.Question{About: &pb.Question_Stacks{Stacks: &pb.Stacks{}}}
	case AboutPing:
		return &pb.Question{About: &pb.Question_Ping{Ping: &pb.Ping{}}}
	case AboutEndpoint:
		return &pb.Question{About: &pb.Question_Endpoint{Endpoint: &pb.Endpoint{}}}
	case AboutGPUs:
		return &pb.Question{About: &pb.Question_Gpus{Gpus: &pb.Gpus{}}}
	default:
		return &pb.Question{}
	}
}

// ToQuestion reverses fromQuestion.
func ToQuestion(q *pb.Question) Question {
	switch b := q.GetAbout().(type) {
	case *pb.Question_Ras:
		return Question{About: AboutRAS}
	case *pb.Question_Samples:
		f := SampleFilter{Since: b.Samples.GetSince().AsDuration(), Every: b.Samples.GetEvery().AsDuration()}
		return Question{About: AboutSamples, Samples: f}
	case *pb.Question_Stacks:
		return Question{About: AboutStacks}
	case *pb.Question_Ping:
		return Question{About: AboutPing}
	case *pb.Question_Endpoint:
		return Question{About: AboutEndpoint}
	case *pb.Question_Gpus:
		return Question{About: AboutGPUs}
	case *pb.Question_Logs:
		return Question{About: AboutLogs, Logs: ToFilter(b.Logs)}
	}
	return Question{}
}

// FromAnswer converts an answer into messages. Series that are too long for one message continue in
// the next.
func FromAnswer(a Answer) iter.Seq[*pb.Answer] {
	return func(yield func(*pb.Answer) bool) {
		m := &pb.Answer{Node: a.Node, Missing: Plain(a.Missing), Facts: a.Facts, Chunk: optional(a.Chunk, fromChunk)}
		if a.Samples == nil {
			yield(m)
			return
		}
		series := func(s report.Series) iter.Seq[*pb.Series] { return fromSeries(a.Samples.Now, s) }
		for part := range pieces(flat(a.Samples.Series, series), sizeOf) {
			if !yield(&pb.Answer{Node: a.Node, Samples: &pb.Samples{Now: timestamppb.New(a.Samples.Now), Series: part}}) {
				return
			}
		}
	}
}

// ToAnswer converts one message of an answer.
func ToAnswer(m *pb.Answer) Answer {
	a := Answer{Node: m.GetNode(), Missing: m.GetMissing(), Facts: m.GetFacts(), Chunk: present(m.GetChunk(), toChunk)}
	if s := m.GetSamples(); s != nil {
		now := s.GetNow().AsTime()
		a.Samples = &Samples{Now: now, Series: Convert(s.GetSeries(), func(s *pb.Series) report.Series { return toSeries(now, s) })}
	}
	return a
}

// maxTimes bounds the samples of a series in one message. With all columns known, 200 samples have
// 44 KiB.
const maxTimes = 200

// fromSeries converts a series, in pieces of maxTimes.
func fromSeries(now time.Time, s report.Series) iter.Seq[*pb.Series] {
	return func(yield func(*pb.Series) bool) {
		for from := 0; from == 0 || from < len(s.Samples); from += maxTimes {
			part := s
			part.Samples = s.Samples[from:min(len(s.Samples), from+maxTimes)]
			if !yield(fromPart(now, part)) {
				return
			}
		}
	}
}

func fromPart(now time.Time, s report.Series) *pb.Series {
	m := &pb.Series{
		Job: s.Job, Rank: int32(s.Rank), LocalRank: int32(s.LocalRank), Pid: int32(s.PID), Gpu: s.GPU,
		Does: line(s.Does, MaxLine),
	}
	if s.Exit != nil {
		m.Exit = fromExit(*s.Exit)
		m.Exit.Spawn = line(m.Exit.Spawn, MaxLine)
	}
	var tracks [numColumns]*pb.Track
	for i, at := range s.Samples {
		m.At = append(m.At, now.Sub(at.At).Milliseconds())
		m.Attempt = append(m.Attempt, int32(at.Attempt))
		for c, v := range columns(&at.Usage) {
			t := tracks[c]
			if t == nil && !math.IsNaN(*v) {
				t = &pb.Track{Column: int32(c)}
				for range i {
					t.Values = append(t.Values, math.NaN())
				}
				tracks[c] = t
			}
			if t != nil {
				t.Values = append(t.Values, *v)
			}
		}
	}
	for _, t := range tracks {
		if t != nil {
			m.Tracks = append(m.Tracks, t)
		}
	}
	return m
}

func toSeries(now time.Time, m *pb.Series) report.Series {
	s := report.Series{
		Job: m.GetJob(), Rank: int(m.GetRank()), LocalRank: int(m.GetLocalRank()), PID: int(m.GetPid()), GPU: m.GetGpu(), Does: m.GetDoes(),
		Exit: present(m.GetExit(), toExit),
	}
	for i, before := range m.GetAt() {
		at := report.Sample{At: now.Add(-time.Duration(before) * time.Millisecond), Usage: report.Unmeasured()}
		if i < len(m.GetAttempt()) {
			at.Attempt = int(m.GetAttempt()[i])
		}
		s.Samples = append(s.Samples, at)
	}
	for i := range s.Samples {
		known := columns(&s.Samples[i].Usage)
		for _, t := range m.GetTracks() {
			if c := t.GetColumn(); c >= 0 && c < numColumns && i < len(t.GetValues()) { // a newer golaunch may send more columns
				*known[c] = t.GetValues()[i]
			}
		}
	}
	return s
}

// numColumns is how many quantities a [report.Usage] has.
const numColumns = 23

// columns returns the quantities of u in the order of their numbers in a Track. The numbers are
// part of the protocol, so a new quantity goes to the end.
func columns(u *report.Usage) [numColumns]*float64 {
	return [...]*float64{
		&u.CPUs, &u.Memory, &u.MemoryTotal, &u.IO, &u.Faults, &u.Processes, &u.Step, &u.Total, &u.StepTime,
		&u.BeatAge, &u.SilenceAge, &u.Lines, &u.LogBytes,
		&u.GPUUse, &u.GPUMemory, &u.GPUMemoryTotal, &u.GPUPower, &u.GPUPowerLimit, &u.GPUTemperature, &u.Xids,
		&u.Received, &u.Sent, &u.Ranks,
	}
}
