package lighthouse

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// tooFew says that fewer replicas ask than a cohort needs.
func (s *State) tooFew(asking []*replica) string {
	return fmt.Sprintf("no quorum: only %s, and a quorum needs %d groups (--min-groups)", asks(asking), s.options.MinReplicas)
}

// minority says that at most half of the live replicas ask.
func minority(asking, silent []*replica) string {
	return fmt.Sprintf("no quorum: %s, but not %s, and more than half of the live ones must", asks(asking), named(silent))
}

// stragglers says for which replicas the others wait. The text stays the same during the wait.
func (s *State) stragglers(silent []*replica) string {
	return fmt.Sprintf("no quorum: waiting for %s, which is alive but has not asked, for %v at most", named(silent), s.options.JoinTimeout)
}

// Groups names the groups of replicas: "group 1", "groups 0, 2, 3".
func Groups(replicas []Replica) string {
	numbers := make([]int, len(replicas))
	for i, r := range replicas {
		numbers[i] = r.Group
	}
	slices.Sort(numbers)
	return list(slices.Compact(numbers))
}

func named(replicas []*replica) string {
	plain := make([]Replica, len(replicas))
	for i, r := range replicas {
		plain[i] = r.Replica
	}
	return Groups(plain)
}

func asks(replicas []*replica) string {
	text := named(replicas)
	if strings.HasPrefix(text, "group ") {
		return text + " asks"
	}
	return text + " ask"
}

// maxNamed bounds the groups that a text names.
const maxNamed = 8

func list(numbers []int) string {
	if len(numbers) == 1 {
		return "group " + strconv.Itoa(numbers[0])
	}
	var text []string
	for _, n := range numbers[:min(len(numbers), maxNamed)] {
		text = append(text, strconv.Itoa(n))
	}
	if more := len(numbers) - maxNamed; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return "groups " + strings.Join(text, ", ")
}
