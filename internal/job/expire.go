package job

import "fmt"

// everyNode stands for all nodes of a job among those that leave.
const everyNode = ""

// expires tells the ranks of all units that the job will end. What does not run does not begin any more.
func (s *State) expires(ev Cancel) string {
	if s.result != nil {
		return s.reword(ev)
	}
	told, r := s.expiry != nil, ev.result()
	s.expiry = &r
	text := fmt.Sprintf("the ranks have %v to get ready for the end of the job: %s", ev.Within, ev.Why)
	if !ev.Loose {
		s.arm(AlarmDrain, ev.Within)
	}
	if told {
		return text
	}
	all := Draining{Node: everyNode, Within: ev.Within, Why: ev.Why}
	s.leaving[everyNode], s.homeless, s.asked = all, nil, nil
	for i := range s.units {
		if u := &s.units[i]; u.phase == Running && u.evacuation == nil {
			u.evacuation = u.loss(all)
			s.forewarn(u, all)
		}
	}
	return text
}

// reword says better why a job was told to stop that still does.
func (s *State) reword(ev Cancel) string {
	if s.result.Ending != EndCancelled || s.result.Code != s.exitCode(EndCancelled, ev.Code) || ev.Ending == "" {
		return ""
	}
	s.result.Code, s.result.Ending, s.result.Reason = s.exitCode(ev.Ending, ev.Code), ev.Ending, ev.result().Reason
	return s.result.Reason
}

// expire ends a job that is to end, once nothing of it lives that is not ready.
func (s *State) expire() string {
	if s.expiry == nil || s.result != nil || s.ready < s.live {
		return ""
	}
	return s.end(*s.expiry)
}
