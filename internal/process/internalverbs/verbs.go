// Package internalverbs names the verbs that only golaunch itself calls. The help of golaunch does
// not show these verbs.
//
// On other machines, and for the ranks of a check, a job runs the golaunch command with such a
// verb. It never runs the program that started the job for this purpose. That program would have to
// recognize an argument, which any caller may pass, or call golaunch at the start of its main. A
// program without that call would start the job again on each node.
package internalverbs

const (
	// Node is a node of a job that another machine leads.
	Node = "_node"
	// Fabric is a rank of the fabric check, with its options as the argument.
	Fabric = "_fabric"
	// Controller is a helper of a program in another language that runs worker groups. The program
	// holds the other end of the helper's standard input.
	Controller = "_controller"
	// Workspace packs a directory for such a program.
	Workspace = "_workspace"
)

// Verbs are all internal verbs.
var Verbs = []string{Node, Fabric, Controller, Workspace}

// ServeNode runs Node and returns its exit code. Package launcher sets it.
var ServeNode func() int
