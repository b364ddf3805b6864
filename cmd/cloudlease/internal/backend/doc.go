// Package backend knows the stores that the command works on: how their URLs are read, what a working one needs, and how one
// is made. Everything that depends on the kind of a store is here, one file for each.
//
//	dynamodb://TABLE?region=R&endpoint=URL&home=R
//	azblob://ACCOUNT/CONTAINER?prefix=P&endpoint=URL&tokens=metadata
//	consul://HOST:PORT/PREFIX?scheme=https&dc=D
//	mem://
//
// A URL names a place and carries no credential: one that does is refused without being repeated, because URLs end up in
// process lists, logs and the environments of children. Credentials come from where the service's own tools look for them.
package backend
