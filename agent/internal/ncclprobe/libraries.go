package ncclprobe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/nccl/dl"
)

// loadTime is how long after its start a rank has most likely loaded NCCL. Importing torch takes
// seconds to a minute.
const loadTime = 2 * time.Minute

// CompareLibraries warns if the ranks have loaded different versions of libnccl. A job with
// different versions may hang without any error. CompareLibraries looks once, after loadTime or
// when loaded ticks. The caller must call stop once the ranks have exited.
func CompareLibraries(all []ranks.Rank, loaded <-chan time.Time, warn func(differing string)) (stop func()) {
	if all[0].Bundle.GPU == nil {
		return func() {}
	}
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		if loaded == nil {
			loaded = time.After(loadTime)
		}
		select {
		case <-ended:
		case <-loaded:
			if text := differing(libraries(all)); text != "" {
				warn(text)
			}
		}
	})
	return func() {
		close(ended)
		running.Wait()
	}
}

// libraries groups the ranks by the libnccl that they have loaded. It omits ranks without libnccl,
// such as a rank that has ended or a shell whose child is the program.
func libraries(all []ranks.Rank) map[string][]int {
	by := map[string][]int{}
	for _, r := range all {
		if paths, err := dl.Loaded(r.Process.Pid()); err == nil && len(paths) > 0 {
			name := strings.Join(paths, " and ")
			by[name] = append(by[name], r.Bundle.Rank)
		}
	}
	return by
}

// shownRanks bounds how many ranks a warning names for each library.
const shownRanks = 8

// differing lists the ranks of each library. The list is empty if all ranks have the same library.
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
