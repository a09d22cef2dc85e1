! A malleable program in Fortran: it integrates a function in steps, and follows its nodes between two of them.
!
!     gfortran $(pkg-config --variable=includedir rms)/rms.f90 malleable.f90 $(pkg-config --libs rms) -o malleable
!     rms submit --malleable 1-8 --negotiable --wrap './malleable 300'
program malleable
  use, intrinsic :: iso_c_binding
  use rms
  implicit none
  type(c_ptr) :: session
  type(rms_limits) :: limits
  type(rms_change) :: change
  integer(c_int32_t) :: generation
  integer(c_int) :: status
  integer :: step, n_steps, i
  real(c_double) :: total
  character(len=16) :: argument

  call get_command_argument(1, argument)
  read (argument, *, iostat=i) n_steps
  if (i /= 0) stop 'usage: malleable STEPS'
  limits%size = c_sizeof(limits)
  limits%least = 1
  limits%most = 8
  limits%automatic = 1
  change%size = c_sizeof(change)
  if (rms_connect(c_null_ptr, session) /= RMS_OK) call fail('cannot negotiate')
  if (rms_declare(session, limits) /= RMS_OK) call fail('cannot declare limits')
  if (rms_generation(session, generation) /= RMS_OK) call fail('cannot see the nodes')
  print '(a,i0)', 'generation ', generation

  total = 0
  do step = 1, n_steps
    do
      status = rms_breakpoint(session, change)
      if (status /= RMS_OK) exit
      print '(a,i0,a,i0,a)', 'generation ', change%generation, ': ', change%n_after, ' nodes'
      do i = 1, int(change%n_nodes)
        print '(a,a)', merge('  came  ', '  leave ', change%kind == RMS_GROW), rms_name(change%nodes, i)
      end do
      ! Here a real program starts processes on new nodes, or moves its data off old ones.
      if (change%kind == RMS_SHRINK) status = rms_release_done(session)
      if (status /= RMS_OK) call fail('cannot give nodes back')
    end do
    if (status /= RMS_NOTHING) call fail('the job cannot go on')
    total = total + work(step)
  end do
  print '(a,f0.6)', 'total ', total
  if (rms_close(session) /= RMS_OK) call fail('cannot close')

contains

  real(c_double) function work(step)
    integer, intent(in) :: step
    integer :: k
    work = 0
    do k = 1, 4000000
      work = work + 1 / (real(k, c_double) * step)**2
    end do
  end function

  subroutine fail(what)
    character(len=*), intent(in) :: what
    print '(a,a,a)', what, ': ', rms_error_text()
    stop 1
  end subroutine
end program
