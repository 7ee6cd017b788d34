package wire

import "time"

// The limits that both sides keep.

// DefaultLease is the lease of a coordinator that names no other.
const DefaultLease = 15 * time.Second

// NoticesPerLease is how many times in a lease the coordinator tells a client that it is still
// there.
const NoticesPerLease = 10

// DialLimit bounds one attempt to connect.
const DialLimit = 5 * time.Second

// PingAfter is how long a connection may be idle before gRPC checks whether it is alive. It is a
// variable for tests whose leases are days.
var PingAfter = 30 * time.Second

// PatienceForReturn is how much longer than its lease a client waits for a coordinator that is
// started again.
const PatienceForReturn = 10 * time.Second

// AckEvery is the number of reports after which the coordinator acknowledges without being asked.
const AckEvery = 64

// GoodbyeLimit bounds the wait for the coordinator to take an agent's last messages.
const GoodbyeLimit = 2 * time.Second

const (
	// Paused is how late a session must run again after the end of its lease to count as paused,
	// perhaps with its machine.
	Paused = 250 * time.Millisecond
	// Reprieval is how long such a session waits for the coordinator. It may have been paused too,
	// and has then given nothing away. The guardian of the ranks keeps them from running meanwhile.
	Reprieval = 1500 * time.Millisecond
)

// HeldOf returns how much of its patience an agent may be held while no leader is known. The rest
// is for the way there and back.
func HeldOf(patience time.Duration) time.Duration { return patience / 4 * 3 }

// MaxVoters is how many nodes keep the state of a job. Of five, two may be lost at the same time.
const MaxVoters = 5

// ProofSize is the length of a proof, in bytes.
const ProofSize = 32
