// Package internalverbs names the verbs that only golaunch itself calls and its help does not show.
//
// What a job runs on another machine, or as a rank of a check, is the golaunch command with such a
// verb, never the program that runs the job. That program would have to recognize an argument,
// which any caller may pass, or a call at the start of its main; if it forgot the call, it would
// start the job again on each node.
package internalverbs

const (
	// Node is a node of a job that another machine leads.
	Node = "_node"
	// Fabric is a rank of the fabric check, with its options as the argument.
	Fabric = "_fabric"
	// Controller is the helper, at the other end of its standard input, of a program in another
	// language that runs worker groups.
	Controller = "_controller"
	// Workspace packs a directory for such a program.
	Workspace = "_workspace"
)

// Verbs are all internal verbs.
var Verbs = []string{Node, Fabric, Controller, Workspace}

// ServeNode runs Node and returns its exit code. Package launcher sets it.
var ServeNode func() int
