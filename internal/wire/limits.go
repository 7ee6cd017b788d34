package wire

import "time"

// What both sides keep to.

// DefaultLease is that of a coordinator which says nothing else.
const DefaultLease = 15 * time.Second

// NoticesPerLease is how often in a lease the coordinator says to a client that it is still there.
const NoticesPerLease = 10

// DialLimit bounds one attempt to connect.
const DialLimit = 5 * time.Second

// PingAfter is how long a connection may be idle until gRPC sees whether it is alive. A variable for tests whose leases are days.
var PingAfter = 30 * time.Second

// PatienceForReturn is how much longer than its lease a client waits for a coordinator that is started again.
const PatienceForReturn = 10 * time.Second

// AckEvery is the number of reports after which the coordinator acknowledges without being asked.
const AckEvery = 64

// GoodbyeLimit bounds the wait for the coordinator to take the last words of an agent.
const GoodbyeLimit = 2 * time.Second

const (
	// Paused is how much later than the end of its lease a session runs again that was paused, with its machine perhaps.
	Paused = 250 * time.Millisecond
	// Reprieval is how long it then waits for the coordinator, which may have been paused too and has then given nothing away. The
	// guardian of the ranks keeps them from running meanwhile.
	Reprieval = 1500 * time.Millisecond
)

// HeldOf is how much of its patience an agent is held where nobody leads, to hear who does: the rest is for the way there and back.
func HeldOf(patience time.Duration) time.Duration { return patience / 4 * 3 }

// MaxVoters is how many nodes keep the state of a job: of five, two may be lost at the same time.
const MaxVoters = 5

// ProofSize is how long a proof is in bytes.
const ProofSize = 32
