! Prints the size of every type of the module, as sizes.c does.
program sizes
  use, intrinsic :: iso_c_binding
  use rms
  implicit none
  type(rms_options) :: options
  type(rms_limits) :: limits
  type(rms_speedup_point) :: point
  type(rms_terms) :: terms
  type(rms_event) :: event
  type(rms_node) :: node
  type(rms_change) :: change
  type(rms_stage) :: stage
  print '(i0)', c_sizeof(options), c_sizeof(limits), c_sizeof(point)
  print '(i0)', c_sizeof(terms), c_sizeof(event), c_sizeof(node), c_sizeof(change)
  print '(i0)', c_sizeof(stage)
end program
