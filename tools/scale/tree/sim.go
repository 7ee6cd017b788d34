package main

// Model is a coordinator with its nodes, of which the coordinator is number 0.
type Model struct {
	// Nodes have an agent each, and Width is how many of them the coordinator, and an agent that passes messages on, has below it. With a
	// Width of Nodes, or more, all are below the coordinator, as they are today.
	Nodes, Width int
	// Merges says that an agent waits for all below it and makes one message of theirs, and of the evidence of failures passes on what a
	// coordinator weighs. Otherwise it passes every message on.
	Merges bool
	// Cores are the coordinator's, and AgentCores what an agent may use beside the ranks.
	Cores, AgentCores int
	// Card and AgentCard are the speeds of network cards, in bits a second each way, and Trip is the time from one node to another and back, in
	// seconds.
	Card, AgentCard, Trip float64
	Cost
}

// Cost is what it costs a core, in seconds: one end of a connection, or of a message, pays that.
type Cost struct {
	// Join is a connection: TLS, the stream, and hello with welcome.
	Join float64
	// Alone is a message that comes alone on its connection, Among one of many that come together, and Byte a byte of either.
	Alone, Among, Byte float64
	// Beat is a heartbeat with its echo, for the coordinator, which it wakes up.
	Beat float64
	// Admit is what the coordinator's goroutine does for a hello, and Step for any other report.
	Admit, Step float64
}

// Message is what one node gets or says at once: so many messages, and their bytes, evidence included.
type Message struct{ Count, Bytes, Evidence int }

// Round is an exchange of the coordinator with all nodes. It is over when the coordinator has taken all that they say.
type Round struct {
	// Joins says which connections are made first.
	Joins Joins
	// News is what each node says when the round begins. With it, orders follow upon the first news.
	News Message
	// Same is ordered of all in the same words, Order of each in its own, and each then says Answer.
	Same, Order, Answer Message
	// Step is what the coordinator's goroutine does for a message of News or Answer, in seconds.
	Step float64
	// Reader says that News and Answer go on to a client.
	Reader bool
}

// Joins are connections that are made.
type Joins int

const (
	None Joins = iota
	// Below are those of the coordinator, and All everybody's.
	Below
	All
)

// Result is what a round took, in seconds, and used: of the coordinator the time of its cores and the bytes of its card, and of the agent
// that has most to do the time of its cores.
type Result struct {
	Took, Head, Agent float64
	In, Out           int
}

// Run does rounds one after another.
func (m Model) Run(rounds ...Round) (sum Result) {
	for _, r := range rounds {
		one := newWorld(m, r).run()
		sum.Took, sum.Head, sum.Agent = sum.Took+one.Took, sum.Head+one.Head, sum.Agent+one.Agent
		sum.In, sum.Out = sum.In+one.In, sum.Out+one.Out
	}
	return sum
}

// maxWeighed is how many ranks' evidence a coordinator looks at (internal/core/job).
const maxWeighed = 64

// onWire is what a message has on the network: a header of gRPC, HTTP/2 and TLS, and those of Ethernet, IP and TCP for each segment of
// 1,448 bytes (5 + 9 + 22, and 38 + 20 + 32).
func onWire(m Message) int {
	bytes := m.Bytes + 36*m.Count
	return bytes + 90*max(m.Count, (bytes+1447)/1448)
}

// parent and below are of a tree that is filled from the top: the nodes below v are k*v+1 to k*v+k.
func (m Model) parent(v int) int { return (v - 1) / m.Width }

func (m Model) below(v int) (from, to int) {
	return min(m.Width*v+1, m.Nodes+1), min(m.Width*v+m.Width, m.Nodes) + 1
}

// sizes are how many nodes each has below it, itself included.
func (m Model) sizes() []int {
	sizes := make([]int, m.Nodes+1)
	for v := m.Nodes; v >= 0; v-- {
		sizes[v]++
		if v > 0 {
			sizes[m.parent(v)] += sizes[v]
		}
	}
	return sizes
}
