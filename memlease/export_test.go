package memlease

import "github.com/cloudlease/cloudlease/lease"

// SetToken makes t the newest token that the service has given, for tests of the end of the range.
func (s *Service) SetToken(t lease.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = t
}
