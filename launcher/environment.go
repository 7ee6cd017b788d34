package launcher

import (
	"net/netip"
	"os"

	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/rankenv"
)

// environment is the part that all ranks of the node at addr share.
func (j Job) environment(addr netip.Addr) (*rankenv.Base, error) {
	user, err := j.user()
	if err != nil {
		return nil, err
	}
	presets, err := j.presets(addr)
	if err != nil {
		return nil, err
	}
	return rankenv.Merge(rankenv.Layers{User: user, Inherited: os.Environ(), Presets: presets, KeepEnv: j.KeepEnv}), nil
}

func (j Job) user() ([]rankenv.Var, error) {
	vars := make([]rankenv.Var, len(j.Env))
	for i, text := range j.Env {
		var err error
		if vars[i], err = rankenv.ParseEnv(text); err != nil {
			return nil, usage("%v", err)
		}
	}
	return vars, nil
}

// presets are the fabric's variables. A job on one node talks over no fabric.
func (j Job) presets(addr netip.Addr) ([]rankenv.Var, error) {
	if j.Preset == "auto" && (j.Request.MaxNodes == 1 || addr.IsLoopback()) {
		return nil, nil
	}
	interfaces, err := nccl.Interfaces()
	if err != nil {
		return nil, err
	}
	facts, _ := nccl.Detect(os.DirFS("/sys"), addr, interfaces)
	vars, err := nccl.Vars(j.Preset, facts)
	if err != nil {
		return nil, usage("%v", err)
	}
	return vars, nil
}
