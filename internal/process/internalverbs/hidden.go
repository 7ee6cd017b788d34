// Package internalverbs names the verbs of the golaunch command that golaunch alone calls, and its help does not show.
//
// What a job runs on another machine, or as a rank of a check, is the command with such a verb, never the program that runs the job: that
// could know of it only by an argument, which anybody may give it, or by a call at the beginning of its main, and one that forgets the call
// would begin the job once more on each node.
package internalverbs

const (
	// Node is a node of a job that is led on another machine.
	Node = "_node"
	// Fabric is a rank of the check of the fabric, with its options as the argument.
	Fabric = "_fabric"
	// Controller is the helper of a program in another language that runs groups of workers, at the other end of its standard input.
	Controller = "_controller"
)

// Verbs are all of them.
var Verbs = []string{Node, Fabric, Controller}

// ServeNode is the life of Node, and returns the exit code. Package launcher sets it.
var ServeNode func() int
