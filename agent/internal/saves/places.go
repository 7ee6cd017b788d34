package saves

import (
	"sync"
	"time"
)

// Places are the directories in which the ranks of a job write checkpoints. They outlive its
// attempts.
type Places struct {
	since time.Time
	mu    sync.Mutex
	// dirs are in the order in which they were found.
	dirs []place
}

// place is a directory with checkpoints. It has the directory's time of change at the last look,
// and the newest checkpoint that was inspected.
type place struct {
	dir     string
	changed time.Time
	last    string
}

// NewPlaces returns the Places of a job that begins now.
func NewPlaces() *Places { return &Places{since: time.Now()} }

// list returns the directories.
func (p *Places) list() []place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]place{}, p.dirs...)
}

// learn adds a directory, unless it is known. If there are too many directories, the new one
// replaces the oldest.
func (p *Places) learn(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.find(dir)
}

func (p *Places) find(dir string) *place {
	for i := range p.dirs {
		if p.dirs[i].dir == dir {
			return &p.dirs[i]
		}
	}
	if len(p.dirs) == maxPlaces {
		p.dirs = p.dirs[1:]
	}
	p.dirs = append(p.dirs, place{dir: dir})
	return &p.dirs[len(p.dirs)-1]
}

// changed notes a look at a directory. It reports whether the newest checkpoint there has not been
// inspected yet.
func (p *Places) changed(a answer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.find(a.dir)
	known.changed = a.at
	return a.name != "" && a.name != known.last
}

// note notes that a checkpoint was inspected.
func (p *Places) note(a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.find(a.dir).last = a.name
}

// Dirs returns the directories, in the order in which they were found.
func (p *Places) Dirs() (dirs []string) {
	for _, known := range p.list() {
		dirs = append(dirs, known.dir)
	}
	return dirs
}
