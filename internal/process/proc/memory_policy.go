package proc

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mpolPreferred is MPOL_PREFERRED in linux/mempolicy.h.
const mpolPreferred = 1

// maxNode is the largest possible number of NUMA nodes of a kernel (CONFIG_NODES_SHIFT is 10 at
// most).
const maxNode = 1024

// memoryPolicy is the memory policy of a thread, in the form of get_mempolicy(2) and
// set_mempolicy(2).
type memoryPolicy struct {
	mode  int32
	nodes [maxNode / 64]uint64
}

// prefer sets the memory policy that the thread's next child inherits: it prefers the memory of a
// node, or is the thread's first policy if node is nil.
func (t *thread) prefer(node *int) (err error) {
	switch {
	case node == nil && t.policy == nil:
		return nil
	case node == nil:
		first := t.policy
		t.policy = nil
		return first.set()
	case *node < 0 || *node >= maxNode:
		return fmt.Errorf("prefer the memory of NUMA node %d: no such node", *node)
	}
	if t.policy == nil {
		if t.policy, err = getMemoryPolicy(); err != nil {
			return err
		}
	}
	next := memoryPolicy{mode: mpolPreferred}
	next.nodes[*node/64] = 1 << (*node % 64)
	if err := next.set(); err != nil {
		return fmt.Errorf("prefer the memory of NUMA node %d: %w (see the Mems_allowed_list in /proc/self/status)", *node, err)
	}
	return nil
}

func getMemoryPolicy() (*memoryPolicy, error) {
	p := &memoryPolicy{}
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY,
		uintptr(unsafe.Pointer(&p.mode)), uintptr(unsafe.Pointer(&p.nodes)), maxNode+1, 0, 0, 0)
	if errno != 0 {
		return nil, fmt.Errorf("get the memory policy of this thread: %w", errno)
	}
	return p, nil
}

func (p *memoryPolicy) set() error {
	_, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, uintptr(p.mode), uintptr(unsafe.Pointer(&p.nodes)), maxNode+1)
	if errno != 0 {
		return fmt.Errorf("set the memory policy: %w", errno)
	}
	return nil
}
