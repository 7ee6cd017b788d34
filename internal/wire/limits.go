package wire

import "time"

// These limits hold on both sides.

// DefaultLease is the lease of a coordinator that sets no other.
const DefaultLease = 15 * time.Second

// NoticesPerLease is how many times in a lease the coordinator tells a client that it is still
// alive.
const NoticesPerLease = 10

// DialLimit bounds one attempt to connect.
const DialLimit = 5 * time.Second

// PingAfter is how long a connection may be idle before gRPC checks whether it is alive. It is a
// variable for tests whose leases are days.
var PingAfter = 30 * time.Second

// PatienceForReturn plus the lease is how long a client waits for a coordinator that is started
// again.
const PatienceForReturn = 10 * time.Second

// AckEvery is the number of reports after which the coordinator acknowledges without being asked.
const AckEvery = 64

// GoodbyeLimit bounds the wait for the coordinator to take an agent's last messages.
const GoodbyeLimit = 2 * time.Second

const (
	// Paused is how late after the end of its lease a session may run. If it runs later, it counts
	// as paused, perhaps with its machine.
	Paused = 250 * time.Millisecond
	// Reprieval is how long a paused session waits for the coordinator. The coordinator may have
	// been paused too, and then has not given the ranks to other nodes. The guardian of the ranks
	// keeps them from running meanwhile.
	Reprieval = 1500 * time.Millisecond
)

// HeldOf returns how long an agent's request may be held while no leader is known. The rest of the
// agent's patience is for the network in both directions.
func HeldOf(patience time.Duration) time.Duration { return patience / 4 * 3 }

// MaxVoters is how many nodes keep the state of a job. Of five, two may be lost at the same time.
const MaxVoters = 5

// ProofSize is the length of a proof, in bytes.
const ProofSize = 32
