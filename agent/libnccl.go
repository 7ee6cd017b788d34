package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/nccl/dl"
)

// loadTime is how long after its start a rank has most likely loaded NCCL: importing torch takes seconds to a minute.
const loadTime = 2 * time.Minute

// compareNCCL looks once, when all ranks have had the time to load it, whether they have the same libnccl. Others make jobs hang in
// ways that no error tells of. It costs one look at the memory map of each. Who calls it calls what it returns when the ranks have
// ended.
func (u *unit) compareNCCL(ranks []rank) (stop func()) {
	if ranks[0].bundle.GPU == nil {
		return func() {}
	}
	ended := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		timer := time.NewTimer(loadTime)
		defer timer.Stop()
		loaded := timer.C
		if u.agent.loaded != nil {
			loaded = u.agent.loaded
		}
		select {
		case <-ended:
		case <-loaded:
			if text := differing(libraries(ranks)); text != "" {
				u.agent.Warn(fmt.Errorf("%s, attempt %d: the ranks have loaded different NCCLs: %s; look at their LD_LIBRARY_PATH and site-packages",
					u.agent.session.Node.Name, u.order.Attempt, text))
			}
		}
	})
	return func() {
		close(ended)
		looking.Wait()
	}
}

// libraries are the ranks by the libnccl that they have loaded. A rank that has none is left out: one that has ended, that is another
// user's by now, or a shell that has the program as its child.
func libraries(ranks []rank) map[string][]int {
	all := map[string][]int{}
	for _, r := range ranks {
		if paths, err := dl.Loaded(r.process.Pid()); err == nil && len(paths) > 0 {
			name := strings.Join(paths, " and ")
			all[name] = append(all[name], r.bundle.Rank)
		}
	}
	return all
}

// shownRanks bounds how many ranks a warning names for each library.
const shownRanks = 8

// differing names the ranks of each library; it is empty when there is but one.
func differing(libraries map[string][]int) string {
	if len(libraries) < 2 {
		return ""
	}
	var text []string
	for _, name := range slices.Sorted(maps.Keys(libraries)) {
		ranks := libraries[name]
		more := ""
		if len(ranks) > shownRanks {
			ranks, more = ranks[:shownRanks], fmt.Sprintf(" and %d more", len(ranks)-shownRanks)
		}
		text = append(text, fmt.Sprintf("%s (ranks %s%s)", name, strings.Trim(fmt.Sprint(ranks), "[]"), more))
	}
	return strings.Join(text, ", ")
}
