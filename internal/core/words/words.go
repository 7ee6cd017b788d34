// Package words has the building blocks of the texts that explain decisions.
package words

import (
	"fmt"
	"strings"

	"github.com/golaunch/golaunch/placement"
)

// Count formats a number with its noun: "1 node", "2 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Also joins two parts of a reason. Either may be empty.
func Also(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// Named returns a node's name with its address.
func Named(n placement.Node) string { return fmt.Sprintf("%s (%v)", n.Name, n.Addr) }

// Endpoint joins an address, as text, and a port.
func Endpoint(addr string, port int) string {
	if strings.Contains(addr, ":") { // IPv6
		addr = "[" + addr + "]"
	}
	return fmt.Sprintf("%s:%d", addr, port)
}
