package straggler

// Signal is a quantity that shows that a rank is slow.
type Signal int

// The signals.
const (
	// Busy is the part of time in which a rank does not wait for others, according to its GPU's
	// power or its CPU time.
	Busy Signal = iota
	// Late is how long after the other ranks of its node a rank writes its heartbeat of a step.
	Late
	// Pace is the time of a rank's steps, and Cadence the time of its lines. They need ranks that
	// do not wait for each other.
	Pace
	Cadence
	signals
	// Dim means that a GPU draws less power than usual since the job became slower.
	Dim Signal = signals
)

// String says how the signal shows that a rank is slow.
func (s Signal) String() string {
	return [...]string{
		Busy:    "it works while others wait",
		Late:    "its heartbeats come after those of its node's other ranks",
		Pace:    "its steps take longer",
		Cadence: "its lines of output come more slowly",
		Dim:     "its GPU draws less power since the job became slower",
	}[s]
}

// schemes were tuned with the simulated jobs of the tests.
var schemes = [signals]scheme{
	Busy:    {window: 11, drop: 3, taper: 3, learn: 30, floor: 0.06, start: 0.25, keep: 6},
	Late:    {window: 11, drop: 3, taper: 3, learn: 30, floor: 0.06, start: 0.1, keep: 6},
	Pace:    {window: 11, drop: 3, taper: 3, learn: 30, floor: 0.06, start: 0.1, keep: 6},
	Cadence: {window: 6, drop: 2, taper: 1, learn: 10, floor: 0.1, start: 0.3},
}
