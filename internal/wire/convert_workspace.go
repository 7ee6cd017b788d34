package wire

import (
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
)

// FromWorkspace converts a workspace into a message; nil for none.
func FromWorkspace(w report.Workspace) *pb.Workspace {
	if w.ID == "" {
		return nil
	}
	return &pb.Workspace{Id: w.ID, Bytes: w.Bytes, Files: int32(w.Files)}
}

// ToWorkspace converts a message, which may be nil, into a workspace.
func ToWorkspace(m *pb.Workspace) report.Workspace {
	return report.Workspace{ID: m.GetId(), Bytes: m.GetBytes(), Files: int(m.GetFiles())}
}
