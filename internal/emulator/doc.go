// Package emulator starts the DynamoDB-compatible engines that the tests of this project run on.
//
//	embedded   in this process, memory only, ready at once; needs Go alone
//	dynalite   a Node.js process, optionally with a data directory; needs "make setup"
//
// StartPostgres starts a PostgreSQL server beside them, for the fence in SQL; it needs the Debian package postgresql.
//
// Neither is the service. What each was seen to do and not to do is written down in localstack/README.md, and what a
// lock needs of both is checked by this package's tests. Where an engine cannot do something it says so with an error:
// a wrong answer would make the tests above it worthless.
//
// Everything listens on the loopback address only and ends with the test that started it. The embedded engine is an
// http.Handler, so that Transport can call it without sockets, inside a testing/synctest bubble.
package emulator
