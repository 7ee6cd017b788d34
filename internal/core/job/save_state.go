package job

// SaveState says how far a checkpoint is, as a node sees it.
type SaveState string

const (
	// SaveBegan means that ranks of the node write it.
	SaveBegan SaveState = "began"
	// SaveComplete means that nothing of it is missing on the node.
	SaveComplete SaveState = "complete"
	// SavePartial means that the ranks of the node have stopped writing it, and that something is
	// missing.
	SavePartial SaveState = "partial"
	// SaveUnknown means that the ranks of the node have stopped writing it, and that its files do not
	// tell whether something is missing.
	SaveUnknown SaveState = "unknown"
	// SaveLeft means that a start finds it as the newest one, and that something is missing. A
	// program that loads the newest one would fail.
	SaveLeft SaveState = "left"
	// SaveSetAside means that it was one of these, and was renamed before the ranks start.
	SaveSetAside SaveState = "set-aside"
)
