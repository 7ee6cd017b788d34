package placement

import (
	"fmt"
	"strings"
)

// refusal says why the node has no room for the wanted shares.
func (r Request) refusal(c *candidate, want int) string {
	if !c.listed {
		return "not in the order's list"
	}
	n := c.node
	if why := n.Labels[UnfitLabel]; why != "" {
		return "unfit: " + why
	}
	if r.allGPUs() {
		if want = r.whole(n); want == 0 && (!r.GPU || n.Labels[SlotsLabel] != "") {
			return fmt.Sprintf("says nothing of how many ranks it runs (label %s=%q), which is to be a number from 1 to %d", SlotsLabel, n.Labels[SlotsLabel], maxPerNode)
		}
		want = max(1, want)
	}
	var why []string
	if r.GPU && r.Fits(c.gpus) < want {
		why = append(why, gpuShortage(n.GPUs, c.gpus, r.Takes(want)))
	}
	if r.CPUs > 0 && n.CPUs != 0 && n.CPUs/r.CPUs < want {
		why = append(why, fmt.Sprintf("has %s, %s of %d wanted", count(max(0, n.CPUs), "CPU"), count(want, "rank"), r.CPUs))
	}
	if r.Memory > 0 && n.Memory != 0 && n.Memory/r.Memory < int64(want) {
		why = append(why, fmt.Sprintf("has %s of memory, %s of %s wanted", bytes(max(0, n.Memory)), count(want, "rank"), bytes(r.Memory)))
	}
	if why == nil {
		return fmt.Sprintf("takes at most %d ranks", maxPerNode)
	}
	return strings.Join(why, ", ")
}

func gpuShortage(gpus []GPU, free, want int) string {
	var b strings.Builder
	switch {
	case len(gpus) == 0:
		return fmt.Sprintf("has no GPU, %d wanted", want)
	case len(gpus) < want:
		fmt.Fprintf(&b, "has %s, %d wanted", count(len(gpus), "GPU"), want)
	default:
		fmt.Fprintf(&b, "%d of %s free", free, count(len(gpus), "GPU"))
	}
	shown := 0
	for _, g := range gpus {
		switch {
		case g.HeldBy == "":
			continue
		case shown == shownGPUs:
			fmt.Fprintf(&b, ", and %d more held", len(gpus)-free-shown)
			return b.String()
		}
		fmt.Fprintf(&b, ", gpu%d held by %s", g.Index, g.HeldBy)
		shown++
	}
	return b.String()
}

// count formats a number with its noun: "1 node", "2 nodes".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// bytes formats an amount of memory in the unit that needs the fewest digits: "1.5 GiB".
func bytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	amount := float64(n)
	for amount >= 1024 {
		amount, units = amount/1024, units[1:]
	}
	return fmt.Sprintf("%.4g %s", amount, units[0])
}
