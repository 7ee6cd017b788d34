package job

// SaveState says how complete a checkpoint is, as a node sees it.
type SaveState string

const (
	// SaveBegan means that ranks of the node write the checkpoint.
	SaveBegan SaveState = "began"
	// SaveComplete means that no part is missing on the node.
	SaveComplete SaveState = "complete"
	// SavePartial means that the ranks of the node have stopped writing, and that a part is
	// missing.
	SavePartial SaveState = "partial"
	// SaveUnknown means that the ranks of the node have stopped writing, and that the files do not
	// tell whether a part is missing.
	SaveUnknown SaveState = "unknown"
	// SaveLeft means that the newest checkpoint at the start of an attempt is partial. A program
	// that loads the newest checkpoint would fail.
	SaveLeft SaveState = "left"
	// SaveSetAside means that the checkpoint was partial like one with [SaveLeft], and that the
	// node renamed it before the ranks started.
	SaveSetAside SaveState = "set-aside"
)
